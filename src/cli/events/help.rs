//! Texts below the help of `event` and its verbs.

/// Below `seqcast event --help`.
pub const EVENT: &str = "\
Examples:
  seqcast event add plant/7/alarm '{\"level\": 3}'
  seqcast event query 'plant/*' --from 1h
  seqcast event tail 'plant/?/alarm'

An event has an identity, server/session/instance, and is stored in the journal of the peer (data-dir). The bus \
carries it on the subject of its type: plant/7/alarm on plant.7.alarm.";

/// Below `seqcast event add --help`.
pub const EVENT_ADD: &str = "\
Examples:
  seqcast event add plant/7/alarm '{\"level\": 3}'
  seqcast event add plant/7/alarm --source-time 90s   occurred 90 seconds ago
  seqcast event add plant/7/photo --file p.jpg --binary jpeg
  generate | seqcast event add plant/7/level          takes standard input as the payload
  generate | seqcast event add plant/7/level --lines  takes each line as the payload of an event

The command prints the event once it is stored durably, before other programs receive it. Subtypes cannot contain ?, * \
and /.";

/// Below `seqcast event query --help`.
pub const EVENT_QUERY: &str = "\
Examples:
  seqcast event query 'plant/?/alarm' --from 1h
  seqcast event query --latest 'plant/*'              finds the last event of each type
  seqcast event query 'plant/*' --reverse --limit 10  finds the last ten events
  seqcast event query --server 7 --after 7/42/1 --json

--latest allows only patterns, and --server only --after and --limit. Without them the events are in the order of \
their times; events of equal time are in the order in which this peer stored them. If a limit ends the output, \
standard error names the option that continues it, and --json ends with a line of the type more_follows.";

/// Below `seqcast event tail --help`.
pub const EVENT_TAIL: &str = "\
Examples:
  seqcast event tail 'plant/?/alarm'
  seqcast event tail '*' --json | jq -r 'select(.type == \"event\").id'

A line that begins with ! reports lost events; 'seqcast event query' may still find them.";
