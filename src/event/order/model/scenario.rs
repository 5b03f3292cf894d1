//! Parameters of a model, and the constants that follow from them.

use crate::event::order::mutant::OrderMutants;
use crate::event::order::name::{Object, WorkerName};
use crate::event::order::worker::Settings;
use bytes::Bytes;
use std::sync::Arc;

/// Duration of a lease, in milliseconds.
pub const LEASE_MS: u64 = 10;

/// Parameters of a model: possible transitions and their maximum numbers.
#[derive(Clone, Debug)]
pub struct OrderScenario {
    /// Names of the workers that run; two may be the same.
    pub workers: &'static [&'static str],
    /// Object of each push, and its number of subevents.
    pub pushes: &'static [(&'static str, usize)],
    /// Number of times that a worker crashes.
    pub crashes: u8,
    /// Number of starts of workers that crashed or stopped.
    pub restarts: u8,
    /// Number of times that the model ends a worker.
    pub ends: u8,
    /// Number of times that time passes.
    pub ticks: u8,
    /// Time that passes each time, in milliseconds.
    pub tick_ms: u64,
    /// Number of times that the store is rolled back to an earlier state.
    pub losses: u8,
    /// True if workers have begun before all other transitions.
    pub is_warm: bool,
    /// True if sending takes time, so that other transitions may happen during it.
    pub is_slow: bool,
    /// Maximum number of events of a batch.
    pub batch_max: usize,
    /// The deliberate mistake in the steps of store and workers, if any.
    pub mutants: OrderMutants,
}

impl Default for OrderScenario {
    fn default() -> OrderScenario {
        OrderScenario {
            workers: &["A"],
            pushes: &[("x", 0)],
            crashes: 0,
            restarts: 0,
            ends: 0,
            ticks: 0,
            tick_ms: LEASE_MS,
            losses: 0,
            is_warm: true,
            is_slow: false,
            batch_max: 2,
            mutants: OrderMutants::default(),
        }
    }
}

/// The constants of a scenario.
#[derive(Debug)]
pub struct ScenarioConstants {
    /// The scenario itself.
    pub scenario: OrderScenario,
    /// Name of each worker.
    pub names: Vec<WorkerName>,
    /// Objects of the pushes, each once.
    pub objects: Vec<Object>,
    /// Events of each object, in the order of the queue.
    pub events: Vec<Vec<Bytes>>,
    /// For each push: the index of the object, the index of its first event, and the number of events.
    pub pushes: Vec<(usize, usize, usize)>,
}

impl ScenarioConstants {
    /// Returns the constants of a scenario.
    ///
    /// # Panics
    /// Panics if a name in the scenario is not valid.
    pub fn new(scenario: &OrderScenario) -> Arc<ScenarioConstants> {
        let mut texts: Vec<&str> = scenario.pushes.iter().map(|(object, _)| *object).collect();
        texts.sort_unstable();
        texts.dedup();
        let mut events = vec![Vec::new(); texts.len()];
        let mut pushes = Vec::new();
        for (text, subs) in scenario.pushes {
            let object = texts.iter().position(|found| found == text).expect("collected above");
            pushes.push((object, events[object].len(), 1 + subs));
            for index in 0..=*subs {
                let kind = if index == 0 { "main" } else { "sub" };
                let text = format!("{kind} {text} {}", events[object].len());
                events[object].push(Bytes::from(text));
            }
        }
        Arc::new(ScenarioConstants {
            scenario: scenario.clone(),
            names: scenario.workers.iter().map(|name| WorkerName::new(name).expect("a name")).collect(),
            objects: texts.iter().map(|text| Object::new(text).expect("a name")).collect(),
            events,
            pushes,
        })
    }

    /// Returns the settings of the worker in this slot.
    pub fn settings(&self, slot: usize) -> Settings {
        Settings { name: self.names[slot].clone(), lease_ms: LEASE_MS }
    }
}
