//! Permissions of calls: adding an event publishes on the subject of its type, and reading a stream subscribes to the
//! subjects of the events in it.

use super::call::Call;
use crate::event::stream::name::StreamType;
use crate::event::stream::store::StreamSettings;
use crate::listener::permissions::{Denial, DeniedAction, Permissions};
use crate::subject::event_type::{EventType, TypePattern};
use std::collections::BTreeSet;

/// Returns the reason why a client with these permissions may not make the call to the stream; `None` if it may.
pub fn call_denial(permissions: &Permissions, stream: &StreamSettings, call: &Call) -> Option<Denial> {
    match call {
        Call::Ping { .. } => None,
        Call::Add { kind, .. } => {
            let event_type = type_of(stream, kind);
            let is_permitted = permissions.publish.permits(event_type.subject());
            (!is_permitted).then(|| Denial::new(DeniedAction::Publish, event_type))
        }
        // The consumer may want a part of the stream only. Its polls and its pushes are checked.
        Call::Register(_) => {
            let mut patterns =
                stream.patterns().into_iter().flat_map(|pattern| pattern.subject_patterns().collect::<Vec<_>>());
            let is_permitted = patterns.any(|pattern| permissions.subscribe.permits_part(&pattern));
            (!is_permitted).then(|| Denial::new(DeniedAction::Subscribe, &stream.name))
        }
        Call::Poll { want, .. } | Call::Ready { want, .. } => read_denial(permissions, stream, want.as_ref()),
    }
}

/// Returns the reason why the client may not read events of these types; `None` if it may. All types are wanted if
/// `want` is `None`. Events that were not added to the stream have subjects of their own, and need all of them.
fn read_denial(
    permissions: &Permissions,
    stream: &StreamSettings,
    want: Option<&BTreeSet<StreamType>>,
) -> Option<Denial> {
    let is_denied = |pattern: &TypePattern| !permissions.subscribe.permits_types(pattern);
    let denied = match want {
        None => stream.patterns().into_iter().find(is_denied).map(|pattern| pattern.to_string()),
        Some(kinds) => {
            let added = kinds.iter().map(|kind| type_of(stream, kind));
            let denied_type = |event_type: &EventType| !permissions.subscribe.permits(event_type.subject());
            let denied = added.into_iter().find(denied_type).map(|event_type| event_type.to_string());
            denied.or_else(|| stream.types.iter().find(|pattern| is_denied(pattern)).map(TypePattern::to_string))
        }
    };
    denied.map(|pattern| Denial::new(DeniedAction::Subscribe, pattern))
}

/// Returns the event type of the events that are added to the stream with this type.
fn type_of(stream: &StreamSettings, kind: &StreamType) -> EventType {
    EventType::new([stream.name.as_str(), kind.as_str()]).expect("two short subtypes")
}

#[cfg(test)]
mod tests {
    use super::super::call::Version;
    use super::*;
    use crate::event::model::Json;
    use crate::event::stream::store::StreamLimits;
    use crate::listener::permissions::SubjectPermission;
    use bytes::Bytes;

    fn add(kind: &str) -> Call {
        let data = Json::from_bytes(Bytes::from_static(b"1")).unwrap();
        Call::Add { kind: kind.parse().unwrap(), data }
    }

    fn ready(want: Option<&[&str]>) -> Call {
        let want = want.map(|kinds| kinds.iter().map(|kind| kind.parse().unwrap()).collect());
        Call::Ready { component: "C".parse().unwrap(), want, version: Version::V1_1 }
    }

    #[test]
    fn calls_need_the_subjects_of_their_events() {
        let only = |texts: &[&str]| SubjectPermission::Only(texts.iter().map(|text| text.parse().unwrap()).collect());
        let register = || Call::Register("C".parse().unwrap());
        for (types, publish, subscribe, call, denied) in [
            (&[][..], &["main.A"][..], &[][..], add("A"), None),
            (&[], &["main.A"], &["main.*"], add("B"), Some("main/B")),
            (&[], &[], &["main.A"], register(), None),
            (&[], &[], &["other.>"], register(), Some("main")),
            (&[], &[], &["main.A"], ready(Some(&["A"])), None),
            (&[], &[], &["main.A"], ready(Some(&["A", "B"])), Some("main/B")),
            (&[], &[], &["main.A"], ready(None), Some("main/?")),
            (&[], &[], &["main.*"], ready(None), None),
            (&["line/?/A"], &[], &["main.*"], ready(None), Some("line/?/A")),
            (&["line/?/A"], &[], &["main.*"], ready(Some(&["A"])), Some("line/?/A")),
            (&["line/?/A"], &[], &["main.*", "line.>"], ready(None), None),
            (&["line/?/A"], &[], &["line.1.>"], register(), None),
        ] {
            let permissions = Permissions { publish: only(publish), subscribe: only(subscribe) };
            let types = types.iter().map(|text| text.parse().unwrap()).collect();
            let stream = StreamSettings { name: "main".parse().unwrap(), types, limits: StreamLimits::default() };
            let denial = call_denial(&permissions, &stream, &call);
            assert_eq!(denial.map(|denial| denial.subject).as_deref(), denied, "{permissions:?} {call:?}");
        }
    }
}
