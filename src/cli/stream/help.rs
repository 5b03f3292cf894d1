//! Texts below the help of `stream`, `consumer` and their verbs.

/// Below `seqcast stream --help`.
pub const STREAM: &str = "\
Examples:
  seqcast stream add DEPOSIT '{\"amount\": \"10.00\"}'
  seqcast stream tail                               keep it running
  seqcast consumer add billing                      registers a consumer that misses no event
  seqcast stream poll billing --accept
  seqcast stream list

A peer that is started with --ftn18 serves streams. An event that is added to the stream main with the type DEPOSIT is \
also an event of the bus, with the type main/DEPOSIT. The peer retains events until every registered consumer has \
accepted them.";

/// Below `seqcast stream add --help`.
pub const STREAM_ADD: &str = "\
Examples:
  seqcast stream add DEPOSIT '{\"amount\": \"10.00\"}'
  seqcast stream add DEPOSIT --file deposit.json --stream bank
  generate | seqcast stream add LEVEL                 takes standard input as the data
  generate | seqcast stream add LEVEL --lines         takes each line as the data of an event";

/// Below `seqcast stream list --help`.
pub const STREAM_LIST: &str = "\
Examples:
  seqcast stream list
  seqcast stream list --stream main --json

Columns:
  last      id of the newest event
  events    number of retained events, and their bytes in the next column
  limits    maximum age and maximum bytes of retained events; - without limit
  policy    at a limit, lapse removes the oldest events, and block refuses new ones
  types     patterns of further event types that the stream contains";

/// Below `seqcast stream poll --help`.
pub const STREAM_POLL: &str = "\
Examples:
  seqcast stream poll billing                         prints the events that it has not accepted
  seqcast stream poll billing --accept --json         prints and then accepts them
  seqcast stream poll billing --last 1371542          first accepts all events up to this id
  seqcast stream poll LIVE --want DEPOSIT             prints retained events without registration

A consumer belongs to a user (--user) and is registered with 'seqcast consumer add'. It \
accepts the events that it does not want.";

/// Below `seqcast stream tail --help`.
pub const STREAM_TAIL: &str = "\
Examples:
  seqcast stream tail
  seqcast stream tail --from 1 --want DEPOSIT --json  begins with the retained events

This command is no consumer: the peer retains no events for it. 'seqcast stream poll' misses no event.";

/// Below `seqcast stream archive --help`.
pub const STREAM_ARCHIVE: &str = "\
Examples:
  seqcast stream archive --to events.db                keep it running
  seqcast stream archive --to events.jsonl --once      archives the events of now and ends
  seqcast stream archive --to plant.db --stream plant --component cellar

The command resumes at its last stored event, even after a crash. The file contains no event twice, and the command \
reports each missing one. A new file begins at the position of the consumer.";

/// Below `seqcast consumer --help`.
pub const CONSUMER: &str = "\
Examples:
  seqcast consumer add billing --user alice
  seqcast consumer list
  seqcast consumer reset billing --user alice --to end
  seqcast consumer remove billing --user alice

A consumer is a component of a user. The peer retains events until the consumer has accepted them, or until the stream \
reaches its limits. Then the consumer has lapsed; it resumes when it is added again.";

/// Below `seqcast consumer add --help`.
pub const CONSUMER_ADD: &str = "\
Examples:
  seqcast consumer add billing
  seqcast consumer add billing --user alice --stream bank
  seqcast consumer add billing --json | jq .missed   shows what a lapsed consumer missed, else null

A new consumer starts with the oldest retained event, and so does one that has lapsed. Any other consumer keeps its \
position.";

/// Below `seqcast consumer remove --help`.
pub const CONSUMER_REMOVE: &str = "\
Examples:
  seqcast consumer remove billing
  seqcast consumer remove billing --user alice --stream bank

The peer discards the position of the consumer. If the consumer is added again, it starts with the oldest retained \
event.";

/// Below `seqcast consumer list --help`.
pub const CONSUMER_LIST: &str = "\
Examples:
  seqcast consumer list
  seqcast consumer list --stream main --json

Columns:
  position      id up to which the consumer has accepted all events
  lag           number of retained events after its position, of all types
  last request  time of its last request (UTC)
  lapsed        events that were removed before the consumer accepted them; - if it has not lapsed";

/// Below `seqcast consumer reset --help`.
pub const CONSUMER_RESET: &str = "\
Examples:
  seqcast consumer reset billing --to start           repeats all retained events
  seqcast consumer reset billing --to end             skips all retained events
  seqcast consumer reset billing --to 1371542         continues after this event

The peer closes the connection over which it pushes events to the consumer, so that the consumer reconnects and \
continues at the new position.";
