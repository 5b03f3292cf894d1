//! Texts below each verb's help: examples first, then everything that is not obvious from the options.

/// Below `seqcast --help`.
pub const MAIN: &str = "\
Examples, each in a shell of its own:
  seqcast peer                              the peer of this host; loopback only until configured
  seqcast sub 'demo.>'                      prints what arrives
  seqcast pub demo.hello 'hi there'         publishes a message
  seqcast show loss                         what was lost, of whom, when
  seqcast demo loss                         no peer needed: watch loss happen and be counted
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
  seqcast peer --interface eth0 --name A.test       the LAN behind eth0
  seqcast peer --config config/param.yaml
  seqcast peer --set pub-window-size='10 mb' --set pub-window-time='60 sec'

There is no default place for the configuration file: it is what --config names, else what SEQCAST_CONFIG names, \
else nothing is read. Options win over the file. The peer says what it chose, then runs until SIGINT or SIGTERM; it \
then tells the other peers that it leaves. Log lines go to standard error.";

/// Below `seqcast pub --help`.
pub const PUB: &str = "\
Examples:
  seqcast pub demo.hello 'hi there'
  seqcast pub demo.n 'number {{count}}' --count 100000 --rate 20000/s
  ls | seqcast pub demo.files                       each line is a message
  seqcast pub demo.picture --file a.png b.png       each file is a message
  seqcast pub demo.text hi -H Content-Type:text/plain --reply my.answers
  seqcast pub demo.hello hi --embed                 without a local peer";

/// Below `seqcast sub --help`.
pub const SUB: &str = "\
Examples:
  seqcast sub 'demo.>'
  seqcast sub demo.hello 'demo.*.state' --timestamp
  seqcast sub demo.hello --count 1 --wait 5s || echo 'nothing came'
  seqcast sub 'demo.>' --live                       never wait for what is missing
  seqcast sub 'demo.>' --queue workers              one of many that share the messages
  seqcast sub 'demo.>' --history 1                  first the last message of each subject
  seqcast sub 'demo.>' --history '10 min' --json    first what was published in ten minutes
  seqcast sub 'demo.>' --json | jq -r 'select(.type == \"loss\")'

Lines of text that begin with ! tell of messages that are lost: the publisher sent them, and they will not come.
Lines that begin with ? tell of what is unverified: something is missing that nothing has explained yet; when a later \
message of the subject proves what it was, a line with ! follows.
With --json each line is an object whose \"type\" is message, loss, joined (--history, --confirm) or dropped (this \
program read too slowly).";

/// Below `seqcast req --help`.
pub const REQ: &str = "\
Examples:
  seqcast req demo.time now
  seqcast req demo.time now --wait 500ms || echo 'nobody answers'
  seqcast req demo.who '?' --replies 3 --json
  seqcast req demo.time now --patient --wait 1m     also if who answers comes within a minute

Ends with exit code 27 if fewer replies than wanted came in time, and at once with 4 if nobody on the LAN is subscribed \
to the subject.";

/// Below `seqcast reply --help`.
pub const REPLY: &str = "\
Examples:
  seqcast reply demo.ping pong
  seqcast reply 'demo.echo.>' --echo
  seqcast reply demo.time --command date
  seqcast reply demo.time --command date --queue clocks    one of many that share the requests
  seqcast reply demo.next 'number {{count}}' --count 10";

/// Below `seqcast poll --help`.
pub const POLL: &str = "\
Examples:
  seqcast poll B.test demo.hello                    what B.test keeps of the subject
  seqcast poll B.test demo.hello --offset 1371542   what came after that event
  seqcast poll B.test demo.hello --follow --json
  seqcast poll 1f6e2c5a90b3d874 demo.hello          this run of a publisher alone

Each line is an event: its offset and its payload. Standard error tells when a recovery phase begins (events were lost, \
or this is the first poll) and ends, that the publisher started again, and at the end where to go on. With --json these \
are lines too, whose \"type\" is recovery, recovered, restart, unanswered or end.

Ends with exit code 0 when nothing is new, 4 if no such peer is known or it has left, 27 if no answer came in time, \
1 if the peer refuses or several have the name.";

/// Below `seqcast event --help`.
pub const EVENT: &str = "\
Examples:
  seqcast event add plant/7/alarm '{\"level\": 3}'
  seqcast event query 'plant/*' --from 1h
  seqcast event tail 'plant/?/alarm'

An event has an identity, server/session/instance, and stays in the journal of the peer (data-dir). \
It travels the bus on the subject of its type: plant/7/alarm on plant.7.alarm.";

/// Below `seqcast event add --help`.
pub const EVENT_ADD: &str = "\
Examples:
  seqcast event add plant/7/alarm '{\"level\": 3}'
  seqcast event add plant/7/alarm --source-time 90s   it occurred a minute and a half ago
  seqcast event add plant/7/photo --file p.jpg --binary jpeg
  generate | seqcast event add plant/7/level          what comes is the payload
  generate | seqcast event add plant/7/level --lines  each line is the payload of an event

Prints the event when it is stored for good, before others get it. Subtypes cannot hold ?, * and /.";

/// Below `seqcast event query --help`.
pub const EVENT_QUERY: &str = "\
Examples:
  seqcast event query 'plant/?/alarm' --from 1h
  seqcast event query --latest 'plant/*'              the last event of each type
  seqcast event query 'plant/*' --reverse --limit 10  the last ten
  seqcast event query --server 7 --after 7/42/1 --json

--latest takes patterns alone, and --server only --after and --limit. Without them: the events in the order of their times, equal ones in the order in which this peer learned \
of them. If a limit cut something off, standard error says how to go on, and so does a last line of --json with the type more_follows.";

/// Below `seqcast event tail --help`.
pub const EVENT_TAIL: &str = "\
Examples:
  seqcast event tail 'plant/?/alarm'
  seqcast event tail '*' --json | jq -r 'select(.type == \"event\").id'

Lines that begin with ! tell of events that are lost to this program; they may still be found with 'seqcast event query'.";

/// Below `seqcast order --help`.
pub const ORDER: &str = "\
Examples:
  seqcast order tail                                leave it running
  seqcast order work w1                             in another shell
  seqcast order push work:1 '{\"main\": 1}' '{\"sub\": 1}' --state '{\"title\": \"Dune\"}'
  seqcast order show

Front ends push events of objects into a store that they share with the workers; workers send them onto the bus; each event names \
the one before it of its object, so that every consumer sees them in one order.";

/// Below `seqcast order push --help`.
pub const ORDER_PUSH: &str = "\
Examples:
  seqcast order push work:1 '{\"main\": 1}' '{\"sub\": 1}' '{\"sub\": 2}' --state '{\"title\": \"Dune\"}'
  seqcast order push work:1 changed --state-file state.json --store redis://127.0.0.1

All of it is done, or nothing. The state is required, since it is set with the events: '{}' if there is none.";

/// Below `seqcast order work --help`.
pub const ORDER_WORK: &str = "\
Examples:
  seqcast order work w1
  seqcast order work w1 --store redis://127.0.0.1 --journal

Runs until SIGINT or SIGTERM, and then ends when its object has no more events. One that was killed goes on where it was when it is \
started again under its name; otherwise others take over what it held when the lease has ended.";

/// Below `seqcast order tail --help`.
pub const ORDER_TAIL: &str = "\
Examples:
  seqcast order tail
  seqcast order tail work:1 work:2 --json

The first event of an object that comes is where it begins. An event whose predecessor is missing waits for it; what workers sent \
with --journal is looked for in the journal of the peer. Lines that begin with ! tell of what cannot be had.";

/// Below `seqcast order show --help`.
pub const ORDER_SHOW: &str = "\
Examples:
  seqcast order show
  seqcast order show work:1 --store redis://127.0.0.1 --json";

/// Below `seqcast stream --help`.
pub const STREAM: &str = "\
Examples:
  seqcast stream add DEPOSIT '{\"amount\": \"10.00\"}'
  seqcast stream tail                               leave it running
  seqcast consumer add billing                      a consumer that misses nothing
  seqcast stream poll billing --accept
  seqcast stream list

The peer serves streams when it is started with --ftn18. An event that is added to the stream main as DEPOSIT is an event of the bus, too: \
main/DEPOSIT. Events are kept until every registered consumer has accepted them.";

/// Below `seqcast stream add --help`.
pub const STREAM_ADD: &str = "\
Examples:
  seqcast stream add DEPOSIT '{\"amount\": \"10.00\"}'
  seqcast stream add DEPOSIT --file deposit.json --stream bank
  generate | seqcast stream add LEVEL                 what comes is the data
  generate | seqcast stream add LEVEL --lines         each line is the data of an event";

/// Below `seqcast stream poll --help`.
pub const STREAM_POLL: &str = "\
Examples:
  seqcast stream poll billing                         what it has not accepted
  seqcast stream poll billing --accept --json         and accepts it when it is printed
  seqcast stream poll billing --last 1371542          accepts everything up to there first
  seqcast stream poll LIVE --want DEPOSIT             what is kept, without being registered

A consumer belongs to a user (--user) and is registered with 'seqcast consumer add'. What it does not want it accepts.";

/// Below `seqcast stream tail --help`.
pub const STREAM_TAIL: &str = "\
Examples:
  seqcast stream tail
  seqcast stream tail --from 1 --want DEPOSIT --json  everything that is kept, then what comes

It is no consumer: events are not kept for it. Use 'seqcast stream poll' to miss nothing.";

/// Below `seqcast stream archive --help`.
pub const STREAM_ARCHIVE: &str = "\
Examples:
  seqcast stream archive --to events.db                leave it running
  seqcast stream archive --to events.jsonl --once      what there is now
  seqcast stream archive --to plant.db --stream plant --component cellar

It goes on where it ended, however that was: no event is in the file twice, and none is missing but those that it says are. \
A new file begins where the consumer is.";

/// Below `seqcast consumer --help`.
pub const CONSUMER: &str = "\
Examples:
  seqcast consumer add billing --user alice
  seqcast consumer list
  seqcast consumer reset billing --user alice --to end
  seqcast consumer remove billing --user alice

A consumer is a component of a user. Events are kept for it until it has accepted them, or the limits of the stream are reached: then it has \
lapsed, and goes on when it is added again.";

/// Below `seqcast consumer list --help`.
pub const CONSUMER_LIST: &str = "\
Examples:
  seqcast consumer list
  seqcast consumer list --stream main --json

Columns:
  position  it has accepted everything up to this id
  behind    events behind its position that are kept, of all types
  heard     when something was heard of it last (UTC)
  lapsed    events that it had not accepted and that are gone";

/// Below `seqcast consumer reset --help`.
pub const CONSUMER_RESET: &str = "\
Examples:
  seqcast consumer reset billing --to start           everything that is kept, again
  seqcast consumer reset billing --to end             only what comes from now on
  seqcast consumer reset billing --to 1371542         what stands behind this event

A connection over which it is pushed to is closed, so that it comes again and goes on from there.";

/// Below `seqcast show --help`.
pub const SHOW: &str = "\
Examples:
  seqcast show loss
  seqcast show loss -v --json
  seqcast show loss --outbound                      what others missed of this peer
  seqcast show history 'demo.>'
  seqcast show peers
  seqcast show status
  seqcast show counters | grep discard";

/// Below `seqcast show loss --help`.
pub const SHOW_LOSS: &str = "\
Columns, one row for each publisher (its name up to the first dot, and a number in the order of first contact):
  user      who published
  repeat    multicast messages received more than once, and when last
  not sub   multicast messages received that nobody here subscribes to, and when last
  msg loss  multicast messages lost, and when last; 5..9 where the number is not known exactly
  ibx loss  messages to this peer alone that were lost, and when last
With -v also, in tables of their own:
  repaired    messages that were missing, were asked for and came, and when last
  unverified  messages in missing datagrams that nothing has explained yet, and when last
  reasons     how often which reason was told with something lost or unverified
  the datagrams of the publisher by state: range = delivered + held + pending + lost + unverified, and
  missing = repaired + pending + lost + unverified; kernel: missing ones that the kernel of this host dropped.
With --outbound a row for each other peer, by its own word, about what this peer published: datagrams missing,
  repaired, pending and unverified; messages lost; when that last changed.
Times are UTC.";

/// Below `seqcast show history --help`.
pub const SHOW_HISTORY: &str = "\
Examples:
  seqcast show history
  seqcast show history 'plant.*.temperature' --limit 20

Columns, one row for each subject: events kept, bytes, their offsets n0 to n1 and numbers, and when the oldest and the \
newest were published. Below that, of all subjects together: how much is kept, of how much at most, and how many events \
were replaced (the limits of their subject), expired (too old), or evicted (the limit of all).";

/// Below `seqcast config --help`.
pub const CONFIG: &str = "\
Examples:
  seqcast config check config/param.yaml            all errors at once, each with its place; exit code 3
  seqcast config show config/param.yaml
  seqcast config show                               the built-in defaults, or what SEQCAST_CONFIG names";

/// Below `seqcast console --help`.
pub const CONSOLE: &str = "\
Examples:
  seqcast console
  echo 'sho los' | seqcast console                  unique beginnings of commands will do

The prompt shows the peer's name, its epoch, the host, and the number of the line in the history, which is kept in \
$XDG_STATE_HOME/seqcast/history, or ~/.local/state/seqcast/history.";

/// Below the list of commands that `help` prints in the console.
pub const CONSOLE_LINE: &str = "\
Any unique beginning of a command will do: sho los. 'COMMAND --help' or 'help COMMAND' explains a command.";

/// Below `seqcast demo --help`.
pub const DEMO: &str = "\
Examples:
  seqcast demo loss
  seqcast demo loss --drop 20% --seed 7
  seqcast demo loss --drop 60% --reliability 1s     more than can be got back in that time
  seqcast demo loss --reliability 5ms               nothing is asked for again
  seqcast demo loss --count 100000 --rate 50000/s --json

Three peers run in this one process on loopback multicast: one publishes, two subscribe and lose that share of the \
datagrams that arrive at their sockets, whatever is in them. At the end every message must be accounted for: sent = delivered + lost + \
unverified, with lost exact for each subject. The exit code is 0 if that holds and 1 if it does not.";

/// Below `seqcast completion --help`.
pub const COMPLETION: &str = "\
Examples:
  seqcast completion bash > /etc/bash_completion.d/seqcast
  seqcast completion zsh > /usr/local/share/zsh/site-functions/_seqcast
  seqcast completion fish > ~/.config/fish/completions/seqcast.fish";
