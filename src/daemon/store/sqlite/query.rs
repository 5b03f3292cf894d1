//! Answers questions: finds places in the orders and in the tail, and reads the events that stand there.

use super::signed;
use crate::daemon::store::error::StoreError;
use crate::event::model::{Event, EventId, Json, Payload, ServerId};
use crate::event::store::{Answer, Answering, By, OfServer, Query, Series};
use crate::event::timestamp::Timestamp;
use crate::subject::Subject;
use crate::subject::event_type::{EventType, TypePattern};
use bytes::Bytes;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Row, params, params_from_iter};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Types of one question that are looked up one by one; for more of them all events are gone through.
const MERGED_TYPES_MAX: usize = 256;
/// The tail, of the table `event`.
const IS_TAIL: &str = "(SELECT arrival FROM filled) < i.arrival";

/// Answers a question by what is in the file now, whatever is appended meanwhile.
pub(super) fn answer(connection: &mut Connection, query: &Query) -> Result<Answer, StoreError> {
    let mut answering = Answering::new(query);
    let snapshot = connection.transaction()?;
    match query {
        Query::Latest(patterns) => latest(&snapshot, patterns.as_deref(), &mut answering)?,
        Query::Series(series) => self::series(&snapshot, series, &mut answering)?,
        Query::Server(of_server) => self::of_server(&snapshot, of_server, &mut answering)?,
    }
    snapshot.commit()?;
    Ok(answering.end())
}

/// Reads the events with these arrivals, as many as the answer takes.
fn take(
    connection: &Connection,
    arrivals: impl Iterator<Item = i64>,
    answering: &mut Answering,
) -> Result<(), StoreError> {
    let mut find = connection.prepare_cached(
        "SELECT e.server, e.session, e.instance, t.subject, e.time, e.source_time, e.payload_type, e.payload \
         FROM event e JOIN type t ON t.number = e.type WHERE e.arrival = ?",
    )?;
    for arrival in arrivals {
        let mut rows = find.query([arrival])?;
        let row = rows.next()?.ok_or_else(|| StoreError::damaged("an arrival"))?;
        if !answering.take(event(row)?) {
            break;
        }
    }
    Ok(())
}

/// The numbers of the types that one of the patterns matches, or of all, in the order of their subjects.
fn matching(connection: &Connection, patterns: Option<&[TypePattern]>) -> Result<Vec<i64>, StoreError> {
    let mut behind =
        connection.prepare_cached("SELECT number, subject FROM type WHERE ? <= subject ORDER BY subject")?;
    let mut found = BTreeMap::new();
    let all = [TypePattern::all()];
    for pattern in patterns.unwrap_or(&all) {
        let prefix = pattern.literal_prefix();
        let mut rows = behind.query([prefix])?;
        while let Some(row) = rows.next()? {
            let event_type = event_type(row.get_ref(1)?)?;
            if !event_type.subject().as_str().starts_with(prefix) {
                break;
            }
            if pattern.matches(&event_type) {
                found.insert(event_type, row.get(0)?);
            }
        }
    }
    Ok(found.into_values().collect())
}

fn latest(
    connection: &Connection,
    patterns: Option<&[TypePattern]>,
    answering: &mut Answering,
) -> Result<(), StoreError> {
    let mut in_tail: HashMap<i64, (i64, i64)> = HashMap::new();
    let mut tail = connection.prepare_cached(&format!("SELECT type, time, arrival FROM event i WHERE {IS_TAIL}"))?;
    let mut rows = tail.query([])?;
    while let Some(row) = rows.next()? {
        let place = (row.get(1)?, row.get(2)?);
        let latest = in_tail.entry(row.get(0)?).or_insert(place);
        *latest = place.max(*latest);
    }
    let mut find = connection
        .prepare_cached("SELECT time, arrival FROM by_type WHERE type = ? ORDER BY time DESC, arrival DESC LIMIT 1")?;
    let mut arrivals = Vec::new();
    for number in matching(connection, patterns)? {
        let mut rows = find.query([number])?;
        let filled = rows.next()?.map(|row| Ok::<_, rusqlite::Error>((row.get(0)?, row.get(1)?))).transpose()?;
        arrivals.extend(filled.max(in_tail.get(&number).copied()).map(|(_, arrival)| arrival));
    }
    take(connection, arrivals.into_iter(), answering)
}

fn of_server(connection: &Connection, of_server: &OfServer, answering: &mut Answering) -> Result<(), StoreError> {
    let place = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let (session, instance) = of_server.after.map_or((0, 0), |after| (place(after.session), place(after.instance)));
    // One more than is wanted, which tells whether there are more.
    let wanted = answering.room() + 1;
    let mut places: Vec<Place> = Vec::new();
    for (table, condition) in [("by_id", "true"), ("event", IS_TAIL)] {
        let mut find = connection.prepare_cached(&format!(
            "SELECT session, instance, arrival FROM {table} i WHERE {condition} AND server = ? \
             AND (session, instance) > (?, ?) ORDER BY session, instance LIMIT {wanted}"
        ))?;
        let mut rows = find.query(params![of_server.server.0, session, instance])?;
        while let Some(row) = rows.next()? {
            places.push((row.get(0)?, row.get(1)?, row.get(2)?));
        }
    }
    places.sort_unstable();
    take(connection, places.into_iter().take(wanted).map(|(.., arrival)| arrival), answering)
}

/// Where an event stands: what orders it, what decides between equals, and its arrival.
type Place = (i64, i64, i64);

fn series(connection: &Connection, series: &Series, answering: &mut Answering) -> Result<(), StoreError> {
    let types = series.types.as_deref().map(|patterns| matching(connection, Some(patterns))).transpose()?;
    let types: Option<BTreeSet<i64>> = types.map(|types| types.into_iter().collect());
    // One more than is wanted, which tells whether there are more.
    let mut finding = Finding { series, types: types.as_ref(), after: None, wanted: answering.room() + 1 };
    if let Some(id) = series.after {
        finding.after = finding.place(connection, id)?;
        if finding.after.is_none() {
            return Ok(());
        }
    }
    let mut places = finding.places(connection, Part::Tail)?;
    match &types {
        Some(types) if series.by == By::Time && types.len() <= MERGED_TYPES_MAX => {
            for number in types {
                places.extend(finding.places(connection, Part::Type(*number))?);
            }
        }
        _ => places.extend(finding.places(connection, Part::All)?),
    }
    places.sort_unstable_by(|a: &Place, b| if series.is_descending { b.cmp(a) } else { a.cmp(b) });
    take(connection, places.into_iter().take(finding.wanted).map(|(.., arrival)| arrival), answering)
}

/// Where to look for the places of a series.
#[derive(Clone, Copy)]
enum Part {
    /// In the order of its time.
    All,
    /// In the order of the time, among the events of this type.
    Type(i64),
    /// In the tail.
    Tail,
}

/// What is looked for.
struct Finding<'a> {
    series: &'a Series,
    /// The numbers of the types that are meant; `None` for all.
    types: Option<&'a BTreeSet<i64>>,
    /// Behind this.
    after: Option<Place>,
    /// So many at most.
    wanted: usize,
}

impl Finding<'_> {
    /// The place of an event in the series; `None` if it is not in it.
    fn place(&self, connection: &Connection, id: EventId) -> Result<Option<Place>, StoreError> {
        let (Ok(session), Ok(instance)) = (signed(id.session), signed(id.instance)) else { return Ok(None) };
        let mut find = connection.prepare_cached(&format!(
            "SELECT time, source_time, arrival, type FROM event WHERE arrival = coalesce(
                (SELECT arrival FROM by_id WHERE server = ?1 AND session = ?2 AND instance = ?3),
                (SELECT arrival FROM event i WHERE {IS_TAIL} AND server = ?1 AND session = ?2 AND instance = ?3)
            )"
        ))?;
        let mut rows = find.query(params![id.server.0, session, instance])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let (time, source_time, number) = (row.get(0)?, row.get::<_, Option<i64>>(1)?, row.get::<_, i64>(3)?);
        let key = if self.series.by == By::Time { Some(time) } else { source_time };
        let is_meant = self.types.is_none_or(|types| types.contains(&number))
            && self.series.time.contains(Some(timestamp(time)?))
            && self.series.source_time.contains(source_time.map(timestamp).transpose()?);
        key.filter(|_| is_meant).map(|key| Ok((key, time, row.get(2)?))).transpose()
    }

    /// The first places in a part.
    fn places(&self, connection: &Connection, part: Part) -> Result<Vec<Place>, StoreError> {
        let types = match part {
            Part::Type(_) => None,
            Part::All | Part::Tail => self.types,
        };
        let (sql, values) = self.sql(part, types.is_some());
        let mut find = connection.prepare_cached(&sql)?;
        let mut rows = find.query(params_from_iter(&values))?;
        let mut places = Vec::new();
        while places.len() < self.wanted
            && let Some(row) = rows.next()?
        {
            if types.is_none_or(|types| row.get(3).is_ok_and(|number| types.contains(&number))) {
                places.push((row.get(0)?, row.get(1)?, row.get(2)?));
            }
        }
        Ok(places)
    }

    /// The question for places in a part, with their types if wanted, and its values. What is named `i` is the order, and `e` the
    /// event, for what the order does not know of it.
    fn sql(&self, part: Part, with_types: bool) -> (String, Vec<Value>) {
        let series = self.series;
        let is_by_time = series.by == By::Time;
        let (table, mut values) = match part {
            Part::Tail => ("event", Vec::new()),
            Part::Type(number) => ("by_type", vec![Value::Integer(number)]),
            Part::All if is_by_time => ("by_time", Vec::new()),
            Part::All => ("by_source_time", Vec::new()),
        };
        let (key, e) = (if is_by_time { "i.time" } else { "i.source_time" }, if table == "event" { "i" } else { "e" });
        let is_joined = e == "e" && (with_types || is_by_time && series.source_time.is_bounded());
        let mut sql = format!(
            "SELECT {key}, i.time, i.arrival{} FROM {table} i{} WHERE {}",
            if with_types { format!(", {e}.type") } else { String::new() },
            if is_joined { " CROSS JOIN event e ON e.arrival = i.arrival" } else { "" },
            match part {
                Part::Tail => IS_TAIL,
                Part::Type(_) => "i.type = ?",
                Part::All => "true",
            }
        );
        let mut put = |part: &str, more: &[i64]| {
            sql.push_str(part);
            values.extend(more.iter().map(|value| Value::Integer(*value)));
        };
        if !is_by_time {
            put(" AND i.source_time IS NOT NULL", &[]);
        }
        let source_time = if is_by_time { format!("{e}.source_time") } else { key.to_owned() };
        for (bound, name, is) in [
            (series.time.from, "i.time", ">="),
            (series.time.to, "i.time", "<="),
            (series.source_time.from, &source_time, ">="),
            (series.source_time.to, &source_time, "<="),
        ] {
            bound.into_iter().for_each(|bound| put(&format!(" AND {name} {is} ?"), &[bound.as_micros()]));
        }
        let (behind, order) = if series.is_descending { ("<", "DESC") } else { (">", "ASC") };
        if let Some((at, time, arrival)) = self.after {
            // The first part lets the order find the place.
            let behind = format!(" AND {key} {behind}= ? AND ({key}, i.time, i.arrival) {behind} (?, ?, ?)");
            put(&behind, &[at, at, time, arrival]);
        }
        let first = if is_by_time { String::new() } else { format!("{key} {order}, ") };
        sql.push_str(&format!(" ORDER BY {first}i.time {order}, i.arrival {order}"));
        (sql, values)
    }
}

/// The event of a row that [`take`] reads.
fn event(row: &Row<'_>) -> Result<Event, StoreError> {
    let server = u32::try_from(row.get::<_, i64>(0)?).map_err(|_| StoreError::damaged("a server"))?;
    let id = EventId { server: ServerId(server), session: unsigned(row.get(1)?)?, instance: unsigned(row.get(2)?)? };
    let payload = match (row.get_ref(7)?, row.get::<_, Option<String>>(6)?) {
        (ValueRef::Null, None) => None,
        (ValueRef::Text(text), None) => {
            let json =
                Json::from_bytes(Bytes::copy_from_slice(text)).map_err(|_| StoreError::damaged("a JSON payload"))?;
            Some(Payload::Json(json))
        }
        (ValueRef::Blob(bytes), Some(type_name)) => {
            Some(Payload::Binary { type_name: type_name.into(), bytes: Bytes::copy_from_slice(bytes) })
        }
        _ => return Err(StoreError::damaged("a payload")),
    };
    Ok(Event {
        id,
        event_type: event_type(row.get_ref(3)?)?,
        timestamp: timestamp(row.get(4)?)?,
        source_timestamp: row.get::<_, Option<i64>>(5)?.map(timestamp).transpose()?,
        payload,
    })
}

pub(super) fn event_type(value: ValueRef<'_>) -> Result<EventType, StoreError> {
    let subject = value.as_bytes().ok().and_then(|bytes| Subject::from_bytes(Bytes::copy_from_slice(bytes)).ok());
    subject.and_then(|subject| EventType::of_subject(&subject)).ok_or_else(|| StoreError::damaged("an event type"))
}

pub(super) fn timestamp(micros: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_micros(micros).map_err(|_| StoreError::damaged("a time"))
}

pub(super) fn unsigned(number: i64) -> Result<u64, StoreError> {
    u64::try_from(number).map_err(|_| StoreError::damaged("an id"))
}
