//! Texts below each verb's help: examples first, then everything that is not obvious from the options.

/// Below `seqcast --help`.
pub const MAIN: &str = "\
Examples, each in a shell of its own:
  seqcast peer                              starts the peer of this host, on loopback
  seqcast sub 'demo.>'                      prints the messages that arrive
  seqcast pub demo.hello 'hi there'         publishes a message
  seqcast show loss                         shows the losses of each publisher
  seqcast demo loss                         drops datagrams and accounts for them; needs no peer
  seqcast doctor                            says why nothing arrives, and what mends it
Try 'seqcast VERB --help' for the examples of a verb.

Exit codes:  0 done, 1 failed, 2 wrong arguments, 3 wrong configuration,
             4 not reachable, 27 timed out waiting
Environment: SEQCAST_SOCKET (socket of the local peer), NO_COLOR,
             SEQCAST_CONFIG (configuration file)
Completion:  seqcast completion bash > /etc/bash_completion.d/seqcast";

/// Below `seqcast peer --help`.
pub const PEER: &str = "\
Examples:
  seqcast peer                                      loopback only: other programs of this host
  seqcast peer --interface eth0                     the LAN behind eth0; needs keys (seqcast init, seqcast join)
  seqcast peer --interface eth0 --open              the same without keys: any host there can read and publish
  seqcast peer --config config/param.yaml
  seqcast peer --set pub-window-size='10 mb' --set pub-window-time='60 sec'

The configuration file is the one that --config or SEQCAST_CONFIG names; without either no file is read. Options \
override the file. The peer reports its choices and runs until SIGINT or SIGTERM. It then notifies the other peers \
that it leaves. Log lines go to standard error.";

/// Below `seqcast pub --help`.
pub const PUB: &str = "\
Examples:
  seqcast pub demo.hello 'hi there'
  seqcast pub demo.n 'number {{count}}' --count 100000 --rate 20000/s
  ls | seqcast pub demo.files                       publishes each line as a message
  seqcast pub demo.picture --file a.png b.png       publishes each file as a message
  sensors | seqcast pub --subject-lines             publishes each line, SUBJECT PAYLOAD
  seqcast pub --json-lines < messages.jsonl         publishes what 'seqcast sub --json' has printed
  seqcast pub demo.text hi -H Content-Type:text/plain --reply my.answers
  seqcast pub demo.hello hi --embed                 needs no local peer

A line of --json-lines is an object such as {\"subject\": \"demo.hello\", \"payload\": \"hi there\"}. Its other fields \
are payload_base64 (instead of payload), reply and headers. A malformed line ends the command with exit code 1, after \
the messages of the lines before it.

Files of 64 KiB and more are read into memory that the local peer can read. 'seqcast show counters' counts them as \
payloads_lent.";

/// Below `seqcast sub --help`.
pub const SUB: &str = "\
Examples:
  seqcast sub 'demo.>'
  seqcast sub demo.hello 'demo.*.state' --timestamp
  seqcast sub demo.hello --count 1 --wait 5s || echo 'nothing came'
  seqcast sub 'demo.>' --live                       delivers without waiting for missing messages
  seqcast sub 'demo.>' --queue workers              shares the messages with other members of the group
  seqcast sub 'demo.>' --history 1                  begins with the last message of each subject
  seqcast sub 'demo.>' --history '10 min' --json    begins with the messages of the last ten minutes
  seqcast sub 'demo.>' --json | jq -r 'select(.type == \"loss\")'
  seqcast sub 'demo.>' --patience 1m                survives a restart of the local peer

A line that begins with ! reports lost messages: the publisher sent them, and they will not arrive.
A line that begins with ? reports unverified messages: datagrams are missing whose content is still unknown. A line \
with ! follows when a later message of the subject proves the loss.
With --json each line is an object, and each message has the time when it was received. The \"type\" is message, loss, \
joined (--history, --confirm), dropped (this program reads too slowly) or peer (--patience: the local peer is gone, or \
back).";

/// Below `seqcast req --help`.
pub const REQ: &str = "\
Examples:
  seqcast req demo.time now
  seqcast req demo.time now --wait 500ms || echo 'nobody answers'
  seqcast req demo.who '?' --replies 3 --json
  seqcast req demo.time now --patient --wait 1m     waits up to a minute for a responder

The exit code is 27 if fewer replies than requested arrive in time. It is 4, at once, if no client on the LAN, \
or in another site that requests cross to, subscribes to the subject.";

/// Below `seqcast reply --help`.
pub const REPLY: &str = "\
Examples:
  seqcast reply demo.ping pong
  seqcast reply 'demo.echo.>' --echo
  seqcast reply demo.time --command date
  seqcast reply demo.time --command date --queue clocks    shares the requests with other members of the group
  seqcast reply demo.next 'number {{count}}' --count 10
  seqcast reply demo.ping pong --patience 1m               survives a restart of the local peer";

/// Below `seqcast poll --help`.
pub const POLL: &str = "\
Examples:
  seqcast poll B.test demo.hello                    prints the messages that B.test retains of the subject
  seqcast poll B.test demo.hello --offset 1371542   prints the messages after that one
  seqcast poll B.test demo.hello --follow --json
  seqcast poll 1f6e2c5a90b3d874 demo.hello          asks this epoch of a publisher only

Each line is an event: its offset and its payload. Standard error reports the start and the end of a recovery phase \
(events were lost, or this is the first poll), a restart of the publisher, and at the end the offset to continue from. \
With --json these reports are lines, too; their \"type\" is recovery, recovered, restart, unanswered or end.

The exit code is 0 if there are no new events, 4 if the peer is unknown or has left, 27 if it does not answer in time, \
and 1 if it refuses or several peers have the name.";

/// Below `seqcast show --help`.
pub const SHOW: &str = "\
Examples:
  seqcast show loss
  seqcast show loss -v --json
  seqcast show loss --outbound                      shows the messages that others missed
  seqcast show loss --by-subject                    shows which subjects lost how much
  seqcast show history 'demo.>'
  seqcast show peers
  seqcast show status
  seqcast show links                                shows what came from other sites
  seqcast show counters | grep discard";

/// Below `seqcast show status --help`.
pub const SHOW_STATUS: &str = "\
Examples:
  seqcast show status
  seqcast show status --json | jq .status.receive_buffer

Further tables list the open listeners, and the event servers that this peer follows (event-follow).";

/// Below `seqcast show links --help`.
pub const SHOW_LINKS: &str = "\
Examples:
  seqcast show links
  seqcast show links --json | jq '.rows[] | {site, lost_min, lost_max}'

Fields:
  state         connected, connecting, or failed; 'fault' is what the cluster last refused
  shares of 16  parts of the subjects that this gateway carries; the other gateways of the site carry the others
  exported      number of messages sent to the cluster; 'taken over' those of another gateway that ended
  of clients    number of messages of the cluster's own clients that were imported
  invalid       number of messages of the cluster that could not be read
Events, if any may cross:
  exported      number of events relayed to other sites; one event counts again when it is requested again
  dropped       announcements, requests and answers for which there was no room; they are requested again
Durable messages:
  usable        whether the stream of the cluster can be used; 'fault' is why not, or what differs from the configuration
  waiting       number of messages that this gateway keeps until the stream has stored them
  unstored      number of messages for which the spool had no room, or that the stream never takes
  restored      number of messages that the stream had lost, and that were sent to it once more
  discarded     messages that the limits of the stream removed before this site read them
  position      stream sequence up to which everything is delivered, if this gateway reads it
Columns, for each other site:
  imported      number of its messages delivered to this LAN by this gateway
  repeated      number of its messages that came more than once, and were delivered once
  lost          number of its messages that were lost on the way, wherever that was
  tails         number of times that its last gateway died, so that an unknown number of messages may be lost

docs/links.md describes links.";

/// Below `seqcast show health --help`.
pub const SHOW_HEALTH: &str = "\
Examples:
  seqcast show health
  seqcast show health --json | jq -r .health.state";

/// Below `seqcast show peers --help`.
pub const SHOW_PEERS: &str = "\
Examples:
  seqcast show peers
  seqcast show peers --json | jq -r '.rows[] | select(.state == \"up\").address'

Columns:
  state       up, silent, left or crashed; 'no multicast' if only the unicast of that peer arrives; 'excluded' while flow \
control does not wait for it
  last heard  time since its last datagram
  msgs in     number of messages received from it; datagrams likewise
  lost        number of its messages lost here; unverified likewise
  repaired    number of its messages that were missing and came on request, and their share of all missed ones";

/// Below `seqcast show subs --help`.
pub const SHOW_SUBS: &str = "\
Examples:
  seqcast show subs
  seqcast show subs --json | jq -r '.rows[].pattern'

Each subscription is a row: number and name of its client, its number and pattern, the glob of a Redis client, its queue \
group, its delivery mode, and the number of messages delivered to it.";

/// Below `seqcast show interest --help`.
pub const SHOW_INTEREST: &str = "\
Examples:
  seqcast show interest
  seqcast show interest --json | jq -r '.rows[] | select(.complete | not).publisher'

Equal subscriptions of a peer's clients are one row with their number. The column complete shows whether this peer \
knows all subscriptions of that peer.";

/// Below `seqcast show seqno --help`.
pub const SHOW_SEQNO: &str = "\
Examples:
  seqcast show seqno
  seqcast show seqno --limit 50000 | grep demo.hello

Each subject of each publisher is a row; those of this peer come first, with - as the user. A sequence number consists \
of the start of its frame and a count from 1.";

/// Below `seqcast show windows --help`.
pub const SHOW_WINDOWS: &str = "\
Examples:
  seqcast show windows
  seqcast show windows --json | jq '.rows[] | {window, subjects, evicted}'

Columns, one row for the publication window (pub) and one for the subscription window (sub):
  size       bytes beyond which the window rotates, which evicts idle subjects (pub-window-size, sub-window-size)
  limit      bytes beyond which the window admits no further subject (pub-window-max, sub-window-max)
  time       minimum time that an idle subject stays (pub-window-time, sub-window-time)
  rotations  number of rotations
  evicted    number of idle subjects that they evicted";

/// Below `seqcast show counters --help`.
pub const SHOW_COUNTERS: &str = "\
Examples:
  seqcast show counters
  seqcast show counters --json | jq -r '.rows[] | select(0 < .value).counter'

Counters only rise while the peer runs, and start at 0 with it.";

/// Below `seqcast show clients --help`.
pub const SHOW_CLIENTS: &str = "\
Examples:
  seqcast show clients
  seqcast show clients --json | jq '.rows[] | select(0 < .dropped).name'

Columns:
  listener, address, account  - for a program that does not use a listener
  user, pid                   user and process of a program at the local socket, as the kernel reports them
  published, delivered        number of messages published, and put into its queue
  dropped                     number of messages and loss reports dropped because the client reads too slowly
  queued, bytes               messages and bytes in its queue
  unread                      bytes at a listener that are not a complete command yet
  denied                      number of its actions that its account does not permit";

/// Below `seqcast show history --help`.
pub const SHOW_HISTORY: &str = "\
Examples:
  seqcast show history
  seqcast show history 'plant.*.temperature' --limit 20

Columns, one row for each subject: number of retained events, bytes, their offsets n0 to n1 and numbers, and the \
publishing times of the oldest and the newest. A further table has the totals of all subjects: retained bytes and \
their maximum, and the numbers of events that were replaced (by the limits of their subject), expired (by age), or \
evicted (by the limit of all subjects).";

/// Below `seqcast config --help`.
pub const CONFIG: &str = "\
Examples:
  seqcast config check config/param.yaml            reports every error with its position; exit code 3
  seqcast config show config/param.yaml
  seqcast config show                               shows the defaults, or the file that SEQCAST_CONFIG names";

/// Below `seqcast config check --help`.
pub const CONFIG_CHECK: &str = "\
Examples:
  seqcast config check config/param.yaml
  seqcast config check --json                       checks the file that SEQCAST_CONFIG names

The command checks the file, and the files that it names, without the environment and the options. The exit code is 3 if \
there is an error. Hints name patterns that a gateway both exports and imports.";

/// Below `seqcast config show --help`.
pub const CONFIG_SHOW: &str = "\
Examples:
  seqcast config show
  seqcast config show config/param.yaml
  SEQCAST_PORT=7600 seqcast config show | grep port

The column source names the origin of each value: the default, the file with line and column, or the environment.";

/// Below `seqcast version --help`.
pub const VERSION: &str = "\
Examples:
  seqcast version
  seqcast version --json | jq .wire

With --json, \"wire\" is the version of the protocol between peers, and \"local_protocol\" that between a program and \
its peer.";

/// Below `seqcast console --help`.
pub const CONSOLE: &str = "\
Examples:
  seqcast console
  echo 'sho los' | seqcast console                  accepts any unique prefix of a command

The prompt shows the peer's name, its epoch, the host, and the number of the line in the history. The history is \
stored in $XDG_STATE_HOME/seqcast/history, or ~/.local/state/seqcast/history.";

/// Below the list of commands that `help` prints in the console.
pub const CONSOLE_LINE: &str = "\
The console accepts any unique prefix of a command: sho los. 'COMMAND --help' or 'help COMMAND' explains a command.";

/// Below `seqcast demo --help`.
pub const DEMO: &str = "\
Examples:
  seqcast demo loss
  seqcast demo loss --drop 20% --seed 7
  seqcast demo loss --drop 60% --reliability 100ms  loses more than can be repaired in that time
  seqcast demo loss --reliability 5ms               requests no retransmissions
  seqcast demo loss --count 100000 --rate 50000/s --json

Three peers run in this process on loopback multicast. One publishes; the two others subscribe and drop this share of \
all datagrams that arrive at their sockets. At the end every message must be accounted for: sent = delivered + lost + \
unverified, with an exact number of lost messages for each subject. The exit code is 0 if that holds, and 1 \
otherwise.";

/// Below `seqcast completion --help`.
pub const COMPLETION: &str = "\
Examples:
  seqcast completion bash > /etc/bash_completion.d/seqcast
  seqcast completion zsh > /usr/local/share/zsh/site-functions/_seqcast
  seqcast completion fish > ~/.config/fish/completions/seqcast.fish";
