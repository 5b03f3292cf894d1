//! Explores all states of a scenario, each once.

use super::canon::Alike;
use super::world::{Fixed, Move, Scenario, World};
use std::collections::HashSet;

/// Statistics of an exploration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub states: usize,
    /// States in which no running participant has anything to do.
    pub quiet: usize,
}

struct Explore {
    alike: Alike,
    visited: HashSet<u128>,
    /// States, with those merged that differ in names and numbers only.
    fewest: HashSet<u128>,
    quiet: usize,
    path: Vec<Move>,
}

/// # Errors
/// Returns the violation, and the moves that lead to it.
pub fn explore(scenario: &Scenario) -> Result<Seen, String> {
    let mut names = scenario.workers.to_vec();
    names.sort_unstable();
    names.dedup();
    // Saved states contain names too, and two workers of one name are not alike.
    let are_alike = scenario.losses == 0 && names.len() == scenario.workers.len();
    let alike = if are_alike { Alike::Workers } else { Alike::Stamps };
    explore_with(scenario, alike).map(|(seen, _)| seen)
}

/// Explores a scenario. Also returns the number of states if those that differ in names and numbers are merged.
///
/// # Errors
/// The errors are those of `explore`.
pub fn explore_with(scenario: &Scenario, alike: Alike) -> Result<(Seen, usize), String> {
    let world = World::new(&Fixed::new(scenario));
    let (visited, fewest) = (HashSet::new(), HashSet::new());
    let mut explore = Explore { alike, visited, fewest, quiet: 0, path: Vec::new() };
    explore.visit(&world).map_err(|text| format!("{text}\nafter {:?}", explore.path))?;
    let states = explore.visited.len();
    let fewest = if alike == Alike::Workers { states } else { explore.fewest.len() };
    Ok((Seen { states, quiet: explore.quiet }, fewest))
}

impl Explore {
    fn visit(&mut self, world: &World) -> Result<(), String> {
        if !self.visited.insert(world.digest(self.alike)) {
            return Ok(());
        }
        if self.alike != Alike::Workers {
            self.fewest.insert(world.digest(Alike::Workers));
        }
        let moves = world.moves();
        if world.is_quiet(&moves) {
            self.quiet += 1;
            world.check_healed()?;
        }
        for next in moves {
            self.path.push(next);
            let mut after = world.clone();
            after.make(next).map_err(|text| format!("{text}\nbefore {world:?}"))?;
            self.visit(&after)?;
            self.path.pop();
        }
        Ok(())
    }
}
