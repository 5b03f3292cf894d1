//! The value of `stream-store`: the location of the event streams' storage.

use super::host_defaults::HostDefaults;
use super::value_error::ValueError;
use super::value_format::ValueFormat;
use std::fmt;
use std::path::PathBuf;

/// Location of the event streams' storage.
#[derive(Clone, PartialEq, Eq)]
pub enum StreamStoreLocation {
    /// In a file of the peer's own, in `data-dir`.
    Auto,
    /// In this SQLite file.
    File(PathBuf),
    /// In the PostgreSQL database at this address, which may hold a password.
    Postgres(String),
}

impl fmt::Display for StreamStoreLocation {
    /// Writes the location as configured, with `***` in place of a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamStoreLocation::Auto => f.write_str("auto"),
            StreamStoreLocation::File(path) => path.display().fmt(f),
            StreamStoreLocation::Postgres(url) => f.write_str(&hidden(url)),
        }
    }
}

impl fmt::Debug for StreamStoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamStoreLocation({self})")
    }
}

/// Returns an address without its password. For an unusual address it hides too much rather than too little: everything
/// between the user and the last `@` that can precede a host.
fn hidden(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (user_info, server) =
        rest.rsplit_once('@').map_or((None, rest), |(user_info, server)| (Some(user_info), server));
    let user_info = user_info.map_or(String::new(), |user_info| match user_info.split_once(':') {
        Some((user, _)) => format!("{user}:***@"),
        None => format!("{user_info}@"),
    });
    let (server, parameters) = server.split_once('?').map_or((server, None), |(server, all)| (server, Some(all)));
    let shown = |parameter: &str| match parameter.split_once('=') {
        Some((name, _)) if name.contains("password") => format!("{name}=***"),
        _ => parameter.to_owned(),
    };
    let parameters = parameters.map(|all| all.split('&').map(shown).collect::<Vec<String>>().join("&"));
    format!("{scheme}://{user_info}{server}{}", parameters.map_or(String::new(), |all| format!("?{all}")))
}

/// Location of the streams: `auto`, a path, or the address of a database.
pub(super) struct StreamStoreFormat;

impl ValueFormat for StreamStoreFormat {
    type Value = StreamStoreLocation;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<StreamStoreLocation, ValueError> {
        match text.split_once(':') {
            _ if text == "auto" => Ok(StreamStoreLocation::Auto),
            Some(("postgres" | "postgresql", rest))
                if rest.starts_with("//") && !text.contains(char::is_whitespace) =>
            {
                Ok(StreamStoreLocation::Postgres(text.to_owned()))
            }
            // No file has such a name; the intended value may contain a password.
            Some(("postgres" | "postgresql", _)) => Err(ValueError::StreamStore),
            _ if text.contains("://") => Err(ValueError::StreamStore),
            _ if text.contains('\0') => Err(ValueError::PathNul),
            _ => Ok(StreamStoreLocation::File(PathBuf::from(text))),
        }
    }

    fn show(&self, value: &StreamStoreLocation) -> String {
        value.to_string()
    }

    fn range(&self) -> String {
        "auto, the path of a SQLite file, or postgres://USER:PASSWORD@HOST:PORT/DATABASE".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_locations_hide_passwords() {
        let defaults = HostDefaults { host: "h".into(), runtime_dir: None, state_dir: None, uid: 1 };
        let hides = |text: &str, shown: &str| {
            let value = StreamStoreFormat.parse(text, &defaults).unwrap();
            assert_eq!(StreamStoreFormat.show(&value), shown);
            assert!(!format!("{value:?}").contains("s3c"), "{value:?}");
        };
        for text in ["auto", "/var/lib/x.db", "streams.db", "postgres://h/db", "postgresql://u@h:5433/db?options=-c"] {
            hides(text, text);
        }
        hides("postgres://u:s3cret@h/db", "postgres://u:***@h/db");
        hides("postgres://u:s3c@r/e?t@h/db", "postgres://u:***@h/db");
        hides(
            "postgres://h/db?user=u&password=s3cret&sslmode=disable",
            "postgres://h/db?user=u&password=***&sslmode=disable",
        );
        for text in ["redis://h", "postgres:/u:s3cret@h", "postgres://u:s3cret word@h"] {
            assert_eq!(StreamStoreFormat.parse(text, &defaults), Err(ValueError::StreamStore), "{text}");
        }
    }
}
