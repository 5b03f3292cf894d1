//! Explores all states of a scenario, each once.

use super::scenario::{OrderScenario, ScenarioConstants};
use super::state::{ModelState, Transition};
use super::state_hasher::StateRelation;
use std::collections::HashSet;

/// Numbers of states that an exploration visited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCounts {
    /// States that differ under the relation of the exploration.
    pub states: usize,
    /// States in which no running participant has anything to do.
    pub quiet: usize,
    /// States that differ under [`StateRelation::Workers`].
    pub fewest: usize,
}

struct Exploration {
    relation: StateRelation,
    visited: HashSet<u128>,
    /// States, with those merged that differ in names and numbers only.
    fewest: HashSet<u128>,
    quiet: usize,
    path: Vec<Transition>,
}

/// Explores a scenario. States are merged under the coarsest relation that its workers permit.
///
/// # Errors
/// Returns the violation, and the transitions that lead to it.
pub fn explore(scenario: &OrderScenario) -> Result<StateCounts, String> {
    let mut names = scenario.workers.to_vec();
    names.sort_unstable();
    names.dedup();
    // Saved states contain names too, and two workers of one name are not alike.
    let are_alike = scenario.losses == 0 && names.len() == scenario.workers.len();
    explore_with(scenario, if are_alike { StateRelation::Workers } else { StateRelation::Stamps })
}

/// Explores a scenario with this relation between states.
///
/// # Errors
/// The errors are those of [`explore`].
pub fn explore_with(scenario: &OrderScenario, relation: StateRelation) -> Result<StateCounts, String> {
    let state = ModelState::new(&ScenarioConstants::new(scenario));
    let (visited, fewest) = (HashSet::new(), HashSet::new());
    let mut exploration = Exploration { relation, visited, fewest, quiet: 0, path: Vec::new() };
    exploration.visit(&state).map_err(|text| format!("{text}\nafter {:?}", exploration.path))?;
    let states = exploration.visited.len();
    let fewest = if relation == StateRelation::Workers { states } else { exploration.fewest.len() };
    Ok(StateCounts { states, quiet: exploration.quiet, fewest })
}

impl Exploration {
    fn visit(&mut self, state: &ModelState) -> Result<(), String> {
        if !self.visited.insert(state.digest(self.relation)) {
            return Ok(());
        }
        if self.relation != StateRelation::Workers {
            self.fewest.insert(state.digest(StateRelation::Workers));
        }
        let transitions = state.transitions();
        if state.is_quiet(&transitions) {
            self.quiet += 1;
            state.check_healed()?;
        }
        for next in transitions {
            self.path.push(next);
            let mut after = state.clone();
            after.perform(next).map_err(|text| format!("{text}\nbefore {state:?}"))?;
            self.visit(&after)?;
            self.path.pop();
        }
        Ok(())
    }
}
