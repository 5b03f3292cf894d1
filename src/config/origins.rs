//! The value of `http-origins`: sites whose pages may use the bus by HTTP.

use super::host_defaults::HostDefaults;
use super::value_error::{ORIGINS_MAX, ValueError};
use super::value_format::ValueFormat;

/// `none`, or origins with spaces between them, each as browsers write it.
pub(super) struct OriginsFormat;

impl ValueFormat for OriginsFormat {
    type Value = Vec<String>;

    fn parse(&self, text: &str, _: &HostDefaults) -> Result<Vec<String>, ValueError> {
        if text == "none" {
            return Ok(Vec::new());
        }
        let origins: Vec<String> = text.split_whitespace().map(str::to_ascii_lowercase).collect();
        if ORIGINS_MAX < origins.len() || !origins.iter().all(|origin| is_origin(origin)) {
            return Err(ValueError::Origins);
        }
        Ok(origins)
    }

    fn show(&self, origins: &Vec<String>) -> String {
        if origins.is_empty() { "none".into() } else { origins.join(" ") }
    }

    fn range(&self) -> String {
        format!(
            "none, or up to {ORIGINS_MAX} origins with spaces between them, each http:// or https:// and HOST or HOST:PORT"
        )
    }
}

/// Returns whether a text is an origin: a scheme, a host, and a port unless it is that of the scheme.
fn is_origin(text: &str) -> bool {
    let (host_and_port, usual) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
        (Some(rest), _) => (rest, ":80"),
        (_, Some(rest)) => (rest, ":443"),
        (None, None) => return false,
    };
    let (host, port) = match host_and_port.rfind(']').map(|at| host_and_port.split_at(at + 1)) {
        Some((host, port)) => (host, port),
        None => host_and_port.find(':').map_or((host_and_port, ""), |at| host_and_port.split_at(at)),
    };
    let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte);
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
    !host.is_empty() && host.bytes().all(is_host_byte) && is_port && port != usual
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_read_as_browsers_write_them() {
        let defaults = HostDefaults { host: "h".into(), runtime_dir: None, state_dir: None, uid: 1 };
        for (text, expected) in [
            ("none", Some("none")),
            ("https://panel.example", Some("https://panel.example")),
            ("http://10.0.0.9:3000  HTTPS://Panel.Example", Some("http://10.0.0.9:3000 https://panel.example")),
            ("http://[fe80::1]:8080", Some("http://[fe80::1]:8080")),
            ("http://[fe80::1]", Some("http://[fe80::1]")),
            ("*", None),
            ("panel.example", None),
            ("https://panel.example/", None),
            ("https://panel.example:443", None),
            ("http://panel.example:80", None),
            ("https://panel.example:x", None),
            ("https://a@b", None),
            ("https://", None),
            ("file://a", None),
        ] {
            let parsed = OriginsFormat.parse(text, &defaults).ok();
            assert_eq!(parsed.map(|origins| OriginsFormat.show(&origins)).as_deref(), expected, "{text}");
        }
        assert!(OriginsFormat.parse(&"http://a ".repeat(33), &defaults).is_err());
    }
}
