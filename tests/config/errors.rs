//! The full texts of configuration errors: texts for people must be compared whole, not by their first word.

/// A file and all errors that are reported about it.
pub struct Case {
    /// The kind of mistake.
    pub name: &'static str,
    /// The file.
    pub text: &'static str,
    /// The errors as they are printed.
    pub errors: &'static str,
}

/// One case for each class of mistake.
pub const CASES: &[Case] = &[
    Case {
        name: "nothing at all",
        text: "",
        errors: r#"param.yaml: contains no configuration
  fix: write 'parameters:' and keys below it; omit the file for the defaults"#,
    },
    Case {
        name: "a list",
        text: "- a\n- b\n",
        errors: r#"param.yaml: must contain lines of the form 'key: value'
  fix: begin with 'parameters:'"#,
    },
    Case {
        name: "a section without keys",
        text: "parameters: 7\n",
        errors: r#"param.yaml:1:13: parameters: must contain lines of the form 'key: value'
    1 | parameters: 7
      |             ^"#,
    },
    Case {
        name: "unknown keys",
        text: "parameters:\n  pub-windw-size: 10 mb\n  colour: red\n  Port: 7500\n  pub_window_tme: 1 s\n",
        errors: r#"param.yaml:2:3: pub-windw-size: unknown key
    2 |   pub-windw-size: 10 mb
      |   ^^^^^^^^^^^^^^
  fix: did you mean pub-window-size?
param.yaml:3:3: colour: unknown key
    3 |   colour: red
      |   ^^^^^^
  fix: 'seqcast config show' lists the keys
param.yaml:4:3: Port: unknown key
    4 |   Port: 7500
      |   ^^^^
  fix: did you mean port?
param.yaml:5:3: pub_window_tme: unknown key
    5 |   pub_window_tme: 1 s
      |   ^^^^^^^^^^^^^^
  fix: did you mean pub-window-time?"#,
    },
    Case {
        name: "keys that were renamed",
        text: "parameters:\n  door-memory: 1 gb\n  door_stranger_max: 64\n",
        errors: r#"param.yaml:2:3: door-memory: unknown key
    2 |   door-memory: 1 gb
      |   ^^^^^^^^^^^
  fix: it was renamed: write listener-memory
param.yaml:3:3: door_stranger_max: unknown key
    3 |   door_stranger_max: 64
      |   ^^^^^^^^^^^^^^^^^
  fix: it was renamed: write listener-unauthenticated-max"#,
    },
    Case {
        name: "a pace that is none",
        text: "parameters:\n  pace: atuo\n  pace_floor: fast\n",
        errors: r#"param.yaml:2:9: pace: "atuo": neither auto nor off nor a size
    2 |   pace: atuo
      |         ^^^^
  fix: did you mean auto?
param.yaml:3:15: pace-floor: "fast": a size starts with a number
    3 |   pace_floor: fast
      |               ^^^^
  fix: write a number of bytes, or a number with kb, mb or gb, such as 10 mb"#,
    },
    Case {
        name: "a pace that is too slow",
        text: "parameters:\n  pace: 10 kb/s\n",
        errors: r#"param.yaml:2:9: pace: "10 kb/s": less than 64 kb, the least allowed
    2 |   pace: 10 kb/s
      |         ^^^^^^^
  fix: allowed: auto, off, or 64 kb to 100 gb a second"#,
    },
    Case {
        name: "a history of one message",
        text: "parameters:\n  history-count: 1\n",
        errors: r#"param.yaml:2:18: history-count: "1": one message is too few: a poll names the predecessor of the requested message, and both must be retained
    2 |   history-count: 1
      |                  ^
  fix: write 2 or more, or 0 to retain none"#,
    },
    Case {
        name: "rules of the history",
        text: "parameters:\n  history-rules:\n    - a..b count 2\n    - a.b cuont 2\n    - a.b count 1\n    - a.b count 2 count 3\n    - a.b\n    - a.b time 5\n    - a.b size\n    -\n    - [a]\n    - a: b\n",
        errors: r#"param.yaml:3:7: history-rules: "a..b count 2": a rule begins with a pattern: empty token at byte 2: a subject must not begin or end with '.' or hold '..'
    3 |     - a..b count 2
      |       ^^^^^^^^^^^^
  fix: write a rule such as plant.> count 10 size 64 kb time 5 min
param.yaml:4:7: history-rules: "a.b cuont 2": "cuont" is none of count, size, time
    4 |     - a.b cuont 2
      |       ^^^^^^^^^^^
  fix: did you mean count?
param.yaml:5:7: history-rules: "a.b count 1": count: one message is too few: a poll names the predecessor of the requested message, and both must be retained
    5 |     - a.b count 1
      |       ^^^^^^^^^^^
  fix: write 2 or more, or 0 to retain none
param.yaml:6:7: history-rules: "a.b count 2 count 3": count is repeated in a rule
    6 |     - a.b count 2 count 3
      |       ^^^^^^^^^^^^^^^^^^^
  fix: write a rule such as plant.> count 10 size 64 kb time 5 min
param.yaml:7:7: history-rules: "a.b": the rule has no limit
    7 |     - a.b
      |       ^^^
  fix: write a rule such as plant.> count 10 size 64 kb time 5 min
param.yaml:8:7: history-rules: "a.b time 5": time: a time needs a unit
    8 |     - a.b time 5
      |       ^^^^^^^^^^
  fix: write 5 sec or 5 ms
param.yaml:9:7: history-rules: "a.b size": size: the value is missing
    9 |     - a.b size
      |       ^^^^^^^^
  fix: write a rule such as plant.> count 10 size 64 kb time 5 min
param.yaml:10:6: history-rules: the value is missing
   10 |     -
      |      ^
  fix: write - plant.> count 10 time 5 min
param.yaml:11:7: history-rules: takes one value, not a list
   11 |     - [a]
      |       ^
  fix: write - plant.> count 10 time 5 min
param.yaml:12:7: history-rules: takes one value, not further keys
   12 |     - a: b
      |       ^
  fix: write - plant.> count 10 time 5 min"#,
    },
    Case {
        name: "lists without spaces beside the separator",
        text: "parameters:\n  link-import: a.>;b.>\n  event-follow: a/?; b/?\n  accounts: user a password x;y subscribe a;b\n",
        errors: r#"param.yaml:2:16: link-import: "a.>;b.>": a ; separates two parts of a list only with a space on both sides
    2 |   link-import: a.>;b.>
      |                ^^^^^^^
  fix: write ' ; ' between two parts, or a YAML list
param.yaml:3:17: event-follow: "a/?; b/?": a ; separates two parts of a list only with a space on both sides
    3 |   event-follow: a/?; b/?
      |                 ^^^^^^^^
  fix: write ' ; ' between two parts, or a YAML list
param.yaml:4:13: accounts: "…": a ; separates two parts of a list only with a space on both sides
  fix: write ' ; ' between two parts, or a YAML list"#,
    },
    Case {
        name: "a link that cannot be what it says",
        text: "parameters:\n  security: open\n  link: nats://hub:4222\n  link-import: hq.>\n  link-import-clients: hq.>\n",
        errors: r#"param.yaml:3:9: link: other sites must know whose messages these are
    3 |   link: nats://hub:4222
      |         ^^^^^^^^^^^^^^^
  fix: write site: NAME, such as plant1
param.yaml:5:24: link-import-clients: without a realm all messages of clients are imported
    5 |   link-import-clients: hq.>
      |                        ^^^^
  fix: remove the key, or join a realm"#,
    },
    Case {
        name: "an unknown section",
        text: "parameter:\n  port: 1\n",
        errors: r#"param.yaml:1:1: parameter: unknown key
    1 | parameter:
      | ^^^^^^^^^
  fix: did you mean parameters?"#,
    },
    Case {
        name: "keys beside the section",
        text: "parameters:\n  port: 1\nttl: 4\ncolor: 1\n",
        errors: r#"param.yaml:3:1: ttl: is not indented below 'parameters:'
    3 | ttl: 4
      | ^^^
  fix: write it below 'parameters:', two spaces further in
param.yaml:4:1: color: unknown key
    4 | color: 1
      | ^^^^^
  fix: the only section is 'parameters:'"#,
    },
    Case {
        name: "repeated keys and sections",
        text: "parameters:\n  inbox-port: 1\n  inbox_port: 2\nparameters:\n  ttl: 300\n",
        errors: r#"param.yaml:3:3: inbox-port: is repeated; it was set in line 2
    3 |   inbox_port: 2
      |   ^^^^^^^^^^
  fix: remove one of the two
param.yaml:4:1: parameters: is repeated; it was set in line 1
    4 | parameters:
      | ^^^^^^^^^^
  fix: merge the two
param.yaml:5:8: ttl: "300": more than 255, the most allowed
    5 |   ttl: 300
      |        ^^^
  fix: allowed: 0 to 255"#,
    },
    Case {
        name: "no single values",
        text: "parameters:\n  port: [1, 2]\n  ttl: {a: b}\n  name:\n  group: ''\n",
        errors: r#"param.yaml:2:9: port: takes one value, not a list
    2 |   port: [1, 2]
      |         ^
  fix: write port: 7501
param.yaml:3:8: ttl: takes one value, not further keys
    3 |   ttl: {a: b}
      |        ^
  fix: write ttl: 4
param.yaml:4:7: name: the value is missing
    4 |   name:
      |       ^
  fix: write name: A.test
param.yaml:5:10: group: the value is missing
    5 |   group: ''
      |          ^^
  fix: write group: 239.1.2.3"#,
    },
    Case {
        name: "sizes and times",
        text: "parameters:\n  pub-window-size: ten mb\n  pub-window-time: 60\n  pub-window-max: 10 mbit\n  sub-window-time: 1 fortnight\n  heartbeat: 1 ms\n  forget: 1 year\n  reliability: -5 ms\n",
        errors: r#"param.yaml:2:20: pub-window-size: "ten mb": a size starts with a number
    2 |   pub-window-size: ten mb
      |                    ^^^^^^
  fix: write a number of bytes, or a number with kb, mb or gb, such as 10 mb
param.yaml:3:20: pub-window-time: "60": a time needs a unit
    3 |   pub-window-time: 60
      |                    ^^
  fix: write 60 sec or 60 ms
param.yaml:4:19: pub-window-max: "10 mbit": "mbit" is no unit of size
    4 |   pub-window-max: 10 mbit
      |                   ^^^^^^^
  fix: write a number of bytes, or a number with kb, mb or gb, such as 10 mb
param.yaml:5:20: sub-window-time: "1 fortnight": not a time: unknown time unit "fortnight", supported units: ns, us/µs, ms, sec, min, hours, days, weeks, months, years (and few variations)
    5 |   sub-window-time: 1 fortnight
      |                    ^^^^^^^^^^^
  fix: write a number with a unit, such as 250 ms, 60 sec or 5 min
param.yaml:6:14: heartbeat: "1 ms": less than 100 ms, the least allowed
    6 |   heartbeat: 1 ms
      |              ^^^^
  fix: allowed: 100 ms to 60 sec
param.yaml:7:11: forget: "1 year": more than 1 day, the most allowed
    7 |   forget: 1 year
      |           ^^^^^^
  fix: allowed: 1 sec to 1 day
param.yaml:8:16: reliability: "-5 ms": not a time: expected number at 0
    8 |   reliability: -5 ms
      |                ^^^^^
  fix: write a number with a unit, such as 250 ms, 60 sec or 5 min"#,
    },
    Case {
        name: "the least window",
        text: "parameters:\n  pub-window-time: 9999 ms\n",
        errors: r#"param.yaml:2:20: pub-window-time: "9999 ms": less than 10 sec, the least allowed: evicting a subject earlier could hide a loss (seed 002 requires 10 sec)
    2 |   pub-window-time: 9999 ms
      |                    ^^^^^^^
  fix: allowed: 10 sec to 1 day"#,
    },
    Case {
        name: "numbers",
        text: "parameters:\n  port: 70000\n  inbox-port: -1\n  ttl: 1.5\n  peers-max: 99999999999999999999999999\n  gaps-max: many\n",
        errors: r#"param.yaml:2:9: port: "70000": more than 65535, the most allowed
    2 |   port: 70000
      |         ^^^^^
  fix: allowed: 1 to 65535
param.yaml:3:15: inbox-port: "-1": not a whole number
    3 |   inbox-port: -1
      |               ^^
  fix: allowed: 0 to 65535
param.yaml:4:8: ttl: "1.5": not a whole number
    4 |   ttl: 1.5
      |        ^^^
  fix: allowed: 0 to 255
param.yaml:5:14: peers-max: "99999999999999999999999999": more than 65536, the most allowed
    5 |   peers-max: 99999999999999999999999999
      |              ^^^^^^^^^^^^^^^^^^^^^^^^^^
  fix: allowed: 1 to 65536
param.yaml:6:13: gaps-max: "many": not a whole number
    6 |   gaps-max: many
      |             ^^^^
  fix: allowed: 16 to 1048576"#,
    },
    Case {
        name: "words and addresses",
        text: "parameters:\n  name: a b\n  security: relm\n  group: 10.0.0.1\n  interface: a b c\n  log-level: warning\n  log-format: jsn\n",
        errors: r#"param.yaml:2:9: name: "a b": a peer name has only letters, digits, '.', '_' and '-', not ' '
    2 |   name: a b
      |         ^^^
  fix: allowed: 1 to 64 of A-Z a-z 0-9 . _ -; auto is the name of the host
param.yaml:3:13: security: "relm": must be one of auto, realm, pki, open
    3 |   security: relm
      |             ^^^^
  fix: did you mean realm?
param.yaml:4:10: group: "10.0.0.1": 10.0.0.1 is not a multicast address
    4 |   group: 10.0.0.1
      |          ^^^^^^^^
  fix: use 224.0.0.0 to 239.255.255.255
param.yaml:5:14: interface: "a b c": 'a b c' is no interface name: a name has at most 15 bytes without spaces and slashes
    5 |   interface: a b c
      |              ^^^^^
  fix: write eth0, 192.0.2.7, 192.0.2.0/24, lo or auto
param.yaml:6:14: log-level: "warning": must be one of error, warn, info, debug, trace
    6 |   log-level: warning
      |              ^^^^^^^
  fix: did you mean warn?
param.yaml:7:15: log-format: "jsn": must be one of text, json
    7 |   log-format: jsn
      |               ^^^
  fix: did you mean json?"#,
    },
    Case {
        name: "networks and long paths",
        text: "parameters:\n  group: fe80::1\n  mode: closed\n  interface: 10.0.0.0/40\n  socket: /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n",
        errors: r#"param.yaml:2:10: group: "fe80::1": fe80::1 is not a multicast address
    2 |   group: fe80::1
      |          ^^^^^^^
  fix: use an address that starts with ff
param.yaml:3:3: mode: unknown key
    3 |   mode: closed
      |   ^^^^
  fix: it was renamed: write security
param.yaml:4:14: interface: "10.0.0.0/40": '10.0.0.0/40' is no network: the part after the slash is 0 to 32 bits, or 0 to 128 for IPv6
    4 |   interface: 10.0.0.0/40
      |              ^^^^^^^^^^^
  fix: write eth0, 192.0.2.7, 192.0.2.0/24, lo or auto
param.yaml:5:11: socket: "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…": the path of a Unix socket has at most 107 bytes, this one has 113
    5 |   socket: /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
      |           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  fix: allowed: a path of at most 107 bytes; auto is $XDG_RUNTIME_DIR/seqcast.sock, else /tmp/seqcast-UID/seqcast.sock"#,
    },
    Case {
        name: "values that contradict each other",
        text: "parameters:\n  pub-window-size: 100 mb\n  sub-window-max: 1 mb\n  hold-size: 1 mb\n  client-subscriptions-max: 10,000,000\n  listener-memory: 2 mb\n  nats: on\n",
        errors: r#"param.yaml:2:20: pub-window-size: pub-window-max (64 mb) is less than pub-window-size (100 mb): the hard limit cannot be below the size at which the window rotates
    2 |   pub-window-size: 100 mb
      |                    ^^^^^^
  fix: raise pub-window-max to 100 mb, or lower pub-window-size
param.yaml:3:19: sub-window-max: sub-window-max (1 mb) is less than sub-window-size (4 mb): the hard limit cannot be below the size at which the window rotates
    3 |   sub-window-max: 1 mb
      |                   ^^^^
  fix: raise sub-window-max to 4 mb, or lower sub-window-size
param.yaml:4:14: hold-size: hold-size (1 mb) is less than message-size (8 mb): the largest message must fit
    4 |   hold-size: 1 mb
      |              ^^^^
  fix: raise hold-size to 8 mb, or lower message-size
param.yaml:5:29: client-subscriptions-max: subscriptions-max (1000000) is less than client-subscriptions-max (10000000): the limit for one cannot be above the limit for all
    5 |   client-subscriptions-max: 10,000,000
      |                             ^^^^^^^^^^
  fix: raise subscriptions-max to 10000000, or lower client-subscriptions-max
param.yaml:6:20: listener-memory: listener-memory (2 mb) is less than four times client-queue-size (64 mb): the maximum memory of one client of a listener must fit
    6 |   listener-memory: 2 mb
      |                    ^^^^
  fix: raise listener-memory to 64 mb, or lower client-queue-size"#,
    },
    Case {
        name: "a tab",
        text: "parameters:\n\tport: 1\n",
        errors: r#"param.yaml:2:2: not YAML: tabs disallowed within this context (block indentation)
    2 |  port: 1
      |  ^"#,
    },
    Case {
        name: "a bad indent",
        text: "parameters:\n  port: 1\n   ttl: 2\n",
        errors: r#"param.yaml:3:7: not YAML: mapping values are not allowed in this context
    3 |    ttl: 2
      |       ^"#,
    },
    Case {
        name: "an open quote",
        text: "parameters:\n  port: 'a\n",
        errors: r#"param.yaml:3:1: not YAML: invalid indentation in multiline quoted scalar
    3 | 
      | ^"#,
    },
    Case {
        name: "an open bracket",
        text: "parameters: [\n",
        errors: r#"param.yaml:1:13: not YAML: unclosed bracket '['
    1 | parameters: [
      |             ^"#,
    },
    Case {
        name: "two documents",
        text: "a: 1\n---\nb: 2\n",
        errors: r#"param.yaml:2:1: a second document begins; only one is allowed
    2 | ---
      | ^^^"#,
    },
    Case {
        name: "an unknown alias",
        text: "parameters:\n  name: *nobody\n",
        errors: r#"param.yaml:2:9: not YAML: alias references unknown anchor
    2 |   name: *nobody
      |         ^"#,
    },
    Case {
        name: "a key that is no word",
        text: "parameters:\n  ? [a, b]\n  : c\n",
        errors: r#"param.yaml:2:5: a key must be a word
    2 |   ? [a, b]
      |     ^"#,
    },
    Case {
        name: "a merge",
        text: "parameters:\n  <<: {port: 1}\n",
        errors: r#"param.yaml:2:3: <<: unknown key
    2 |   <<: {port: 1}
      |   ^^
  fix: 'seqcast config show' lists the keys"#,
    },
    Case {
        name: "an alias bomb",
        text: "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n",
        errors: r#"param.yaml:3:32: the document holds, or its aliases expand to, more than 1000 keys and values
    3 | c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]
      |                                ^^"#,
    },
    Case {
        name: "an alias of itself",
        text: "parameters: &a\n  port: *a\n",
        errors: r#"param.yaml:2:9: not YAML: recursive references require weak recursion types
    2 |   port: *a
      |         ^^"#,
    },
    Case {
        name: "control characters",
        text: "\u{1}\n",
        errors: r#"param.yaml: is not text: byte 0 is not UTF-8, or is a control character
  fix: is this the right file?"#,
    },
    Case {
        name: "line ends of another system",
        text: "parameters:\r\n  port: 1\r\n  tll: 1\r\n",
        errors: r#"param.yaml:3:3: tll: unknown key
    3 |   tll: 1
      |   ^^^
  fix: did you mean ttl?"#,
    },
    Case {
        name: "unicast copies that cannot leave this host",
        text: "parameters:\n  peers: 10.0.0.7\n",
        errors: r#"param.yaml:2:10: peers: other hosts cannot be reached by the interface lo, which stays on this host
    2 |   peers: 10.0.0.7
      |          ^^^^^^^^
  fix: write interface: auto, or the name of the interface that leads to these hosts"#,
    },
];
