//! The files of the container, as far as they can be checked without a container engine.

use crate::support::command::{Place, parse_json};
use crate::support::exit_code::DONE;
use crate::support::root;
use crate::support::wait::wait_until;
use serde_json::Value;
use std::fs;

/// Returns the arguments of all instructions of this name in the Containerfile.
fn instructions(name: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("config/container/Containerfile")).unwrap();
    let text = text.replace("\\\n", " ");
    let arguments = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(' ')?.trim().to_owned());
    let found: Vec<String> = text.lines().filter_map(arguments).collect();
    assert!(!found.is_empty(), "{name} is missing");
    found
}

#[test]
fn image_copies_files_that_exist() {
    for copied in instructions("COPY").iter().filter(|copied| !copied.starts_with("--from")) {
        let mut paths: Vec<&str> = copied.split_whitespace().collect();
        paths.pop();
        for path in paths {
            assert!(root().join(path).exists(), "COPY {copied}: {path} does not exist");
        }
    }
}

#[test]
fn image_runs_commands_that_exist() {
    let place = Place::new();
    let words = |text: &str| -> Vec<String> { serde_json::from_str(text).unwrap() };
    let health = instructions("HEALTHCHECK").remove(0);
    let health = words(health.split_once("CMD ").unwrap().1);
    assert_eq!(health, ["seqcast", "health"]);
    let command = words(&instructions("CMD").remove(0));
    assert_eq!(command, ["peer", "--config", "/etc/seqcast/param.yaml"]);
    assert_eq!(words(&instructions("ENTRYPOINT").remove(0)), ["seqcast"]);
    let _peer = place.peer(&["--config", &root().join("config/param.yaml").display().to_string()]);
    place.run(&["health"]).exits(DONE);
}

#[test]
fn composed_peers_hear_each_other() {
    let container = root().join("config/container");
    let compose = fs::read_to_string(container.join("compose.yaml")).unwrap();
    let compose: Value = serde_yaml::from_str(&compose).unwrap();
    let services = compose["services"].as_object().unwrap();
    assert_eq!(services.keys().collect::<Vec<_>>(), ["alpha", "beta"]);
    let configuration = |service: &Value| {
        assert_eq!(service["network_mode"], "host", "{service}");
        let volume = service["volumes"][0].as_str().unwrap();
        container.join(volume.strip_suffix(":/etc/seqcast/param.yaml:ro").unwrap()).display().to_string()
    };
    let build = &services["alpha"]["build"];
    assert!(container.join(build["context"].as_str().unwrap()).join(build["dockerfile"].as_str().unwrap()).exists());
    let [alpha, beta] = ["alpha", "beta"].map(|name| configuration(&services[name]));

    let place = Place::new();
    place.run(&["config", "check", &alpha]).exits(DONE);
    place.run(&["config", "check", &beta]).exits(DONE);
    let _alpha = place.peer(&["--config", &alpha]);
    let _beta = place.start(&["peer", "--config", &beta, "--socket", "beta.sock"]);
    wait_until("alpha hears beta", || {
        let peers = parse_json(&place.run(&["show", "peers", "--json"]).exits(DONE).stdout);
        peers["rows"].as_array().is_some_and(|rows| rows.iter().any(|row| row["publisher"] == "beta"))
    });
}
