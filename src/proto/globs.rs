//! Cost of the globs of local clients for each message: the maximum number of steps to match all of them.
//!
//! A glob is matched only against subjects that begin with its leading whole tokens. In the worst case all globs have the same
//! prefix, and one message is matched against all of them. So the limit is on their sum.

use crate::message::{ClientId, Refusal};
use crate::subject::glob::Glob;
use std::collections::BTreeMap;

/// Maximum number of steps of all globs together. A step takes two or three nanoseconds, so the worst message costs
/// about 10 ms.
pub(super) const STEPS_MAX: usize = 4_000_000;
/// Maximum number of steps of the globs of one client. One client alone cannot use up the global limit, and 100,000
/// globs of 20 bytes with a `*` at their end fit.
pub(super) const CLIENT_STEPS_MAX: usize = 2_500_000;
const _: () = assert!(CLIENT_STEPS_MAX < STEPS_MAX);

/// Steps in use.
#[derive(Debug, Default)]
pub(super) struct GlobSteps {
    clients: BTreeMap<ClientId, usize>,
    all: usize,
}

impl GlobSteps {
    /// Adds a glob of a client.
    ///
    /// # Errors
    /// [`Refusal::TooManyGlobSteps`] with the limit that would be exceeded; nothing is changed then.
    pub(super) fn add(&mut self, client: ClientId, glob: &Glob) -> Result<(), Refusal> {
        let steps = glob.steps_max();
        let own = self.clients.get(&client).copied().unwrap_or(0);
        if CLIENT_STEPS_MAX < own + steps {
            return Err(Refusal::TooManyGlobSteps { max: CLIENT_STEPS_MAX });
        }
        if STEPS_MAX < self.all + steps {
            return Err(Refusal::TooManyGlobSteps { max: STEPS_MAX });
        }
        self.all += steps;
        self.clients.insert(client, own + steps);
        Ok(())
    }

    /// Removes a glob of the client, which was added before.
    pub(super) fn remove(&mut self, client: ClientId, glob: &Glob) {
        let own = self.clients.get_mut(&client).expect("every glob of a client was added");
        *own -= glob.steps_max();
        self.all -= glob.steps_max();
        if *own == 0 {
            self.clients.remove(&client);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glob_steps_are_limited_per_client_and_overall() {
        let worst = Glob::new(&[b"*", &[b'a'; 253][..], b"*"].concat()).unwrap();
        let cheap = Glob::new(b"a.*").unwrap();
        let mut steps = GlobSteps::default();
        let mut taken = Vec::new();
        for client in (0..100).map(ClientId) {
            while steps.add(client, &worst).is_ok() {
                taken.push(client);
            }
        }
        let per_client = CLIENT_STEPS_MAX / worst.steps_max();
        assert_eq!(taken.iter().filter(|client| client.0 == 0).count(), per_client);
        assert_eq!(taken.len(), STEPS_MAX / worst.steps_max());
        assert_eq!(steps.add(ClientId(0), &worst), Err(Refusal::TooManyGlobSteps { max: CLIENT_STEPS_MAX }));
        assert_eq!(steps.add(ClientId(100), &worst), Err(Refusal::TooManyGlobSteps { max: STEPS_MAX }));
        assert_eq!(steps.add(ClientId(100), &cheap), Ok(()));
        steps.remove(ClientId(100), &cheap);
        taken.into_iter().for_each(|client| steps.remove(client, &worst));
        assert!(steps.all == 0 && steps.clients.is_empty());
        for _ in 0..100_000 {
            assert_eq!(steps.add(ClientId(1), &Glob::new(b"user:123456789:mail*").unwrap()), Ok(()));
        }
    }
}
