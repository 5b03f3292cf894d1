//! The values of the keys about events: which server creates them, where they are kept.

use super::surroundings::Surroundings;
use super::value::{Kind, Number, ValueError};
use crate::event::model::ServerId;
use std::path::PathBuf;

/// The number of a server; `auto` is one that is drawn once, and kept in the data directory.
pub(super) struct Server;

const SERVER: Number<u32> = Number { min: 0, max: u32::MAX };

impl Kind for Server {
    type Value = Option<ServerId>;

    fn parse(&self, text: &str, here: &Surroundings) -> Result<Option<ServerId>, ValueError> {
        if text == "auto" { Ok(None) } else { SERVER.parse(text, here).map(|number| Some(ServerId(number))) }
    }

    fn show(&self, value: &Option<ServerId>) -> String {
        value.map_or("auto".into(), |server| server.to_string())
    }

    fn range(&self) -> String {
        format!("{}, or auto: drawn once and kept in the data directory", SERVER.range())
    }
}

/// A directory; `auto` depends on the user.
pub(super) struct DataDir;

impl Kind for DataDir {
    type Value = PathBuf;

    fn parse(&self, text: &str, here: &Surroundings) -> Result<PathBuf, ValueError> {
        match text {
            "auto" => Ok(here.data_dir()),
            _ if text.contains('\0') => Err(ValueError::PathNul),
            _ => Ok(PathBuf::from(text)),
        }
    }

    fn show(&self, value: &PathBuf) -> String {
        value.display().to_string()
    }

    fn range(&self) -> String {
        "a path; auto is seqcast in $XDG_STATE_HOME, else in ~/.local/state".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(uid: u32, state_dir: Option<&str>) -> Surroundings {
        Surroundings { host: "h".into(), runtime_dir: None, state_dir: state_dir.map(PathBuf::from), uid }
    }

    #[test]
    fn the_data_directory_is_the_users_own() {
        let auto = |state_dir| DataDir.parse("auto", &here(7, state_dir)).unwrap();
        assert_eq!(auto(Some("/u/.local/state")), PathBuf::from("/u/.local/state/seqcast"));
        assert_eq!(auto(None), PathBuf::from("/tmp/seqcast-7/data"));
    }

    #[test]
    fn values_come_back_as_they_are_shown() {
        let here = here(1, None);
        for text in ["auto", "0", "4294967295"] {
            assert_eq!(Server.show(&Server.parse(text, &here).unwrap()), text);
        }
        assert!(Server.parse("4294967296", &here).is_err());
    }
}
