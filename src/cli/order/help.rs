//! Texts below the help of `order` and its verbs.

/// Below `seqcast order --help`.
pub const ORDER: &str = "\
Examples:
  seqcast order tail                                keep it running
  seqcast order work w1                             run it in another shell
  seqcast order push work:1 '{\"main\": 1}' '{\"sub\": 1}' --state '{\"title\": \"Dune\"}'
  seqcast order show

Front ends push events of objects into a store that they share with the workers. Workers publish the events. Each \
event names its predecessor of the same object, so every consumer sees the events of an object in one order.";

/// Below `seqcast order push --help`.
pub const ORDER_PUSH: &str = "\
Examples:
  seqcast order push work:1 '{\"main\": 1}' '{\"sub\": 1}' '{\"sub\": 2}' --state '{\"title\": \"Dune\"}'
  seqcast order push work:1 changed --state-file state.json --store redis://127.0.0.1

The command pushes all events and sets the state, or does nothing. Use '{}' as the state of an object without one.";

/// Below `seqcast order work --help`.
pub const ORDER_WORK: &str = "\
Examples:
  seqcast order work w1
  seqcast order work w1 --store redis://127.0.0.1 --journal

The worker runs until SIGINT or SIGTERM, and then ends once its object has no more events. A killed worker resumes its \
object when it starts again under the same name. Otherwise another worker takes the object over when the lease ends.";

/// Below `seqcast order tail --help`.
pub const ORDER_TAIL: &str = "\
Examples:
  seqcast order tail
  seqcast order tail work:1 work:2 --json

The output of an object begins with its first event that arrives. An event waits for a missing predecessor. The \
command looks for the predecessor in the journal of the peer, which contains the events of workers with --journal. A \
line that begins with ! reports events that cannot be recovered.";

/// Below `seqcast order show --help`.
pub const ORDER_SHOW: &str = "\
Examples:
  seqcast order show
  seqcast order show work:1 --store redis://127.0.0.1 --json";
