//! The Debian package: built from the tested binary, checked by lintian, then installed, used and purged. Overlays keep
//! every change inside the namespace of the test.

use super::lan::{Process, in_namespaces, run};
use super::wait_until;
use crate::support::root;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Puts writable layers over the directories that dpkg changes.
const OVERLAYS: &str = "
    ip link set lo up
    mount -t tmpfs tmpfs /run
    for directory in etc usr var; do
        mkdir -p /run/layers/$directory/upper /run/layers/$directory/work
        mount -t overlay overlay /$directory \
            -o userxattr,lowerdir=/$directory,upperdir=/run/layers/$directory/upper,workdir=/run/layers/$directory/work
    done
    # Their group is unknown in the namespace, so only copies can be changed.
    for file in shadow shadow- gshadow gshadow-; do
        if [ -e /etc/$file ]; then cp /etc/$file /run/copy; rm /etc/$file; cp /run/copy /etc/$file; fi
    done";

/// Runs a shell command; it must succeed. Returns what it printed.
fn shell(command: &str) -> String {
    run(Command::new("sh").args(["-e", "-c", command]).current_dir(root()))
}

#[test]
fn package_is_installed_used_and_purged() {
    in_namespaces("netns::deb::package_is_installed_used_and_purged", || {
        shell(OVERLAYS);
        let package = shell(&format!("tools/deb --binary {} --output /run/deb", env!("CARGO_BIN_EXE_seqcast")));
        let package = package.trim();
        // The tests of the manual pages check them in one run of groff; lintian would start it for each page.
        let lintian = "lintian --allow-root --fail-on none --dont-check-part documentation/manual";
        assert_eq!(shell(&format!("{lintian} {package}")), "", "lintian finds faults");

        shell(&format!("dpkg --no-triggers --install {package} >/dev/null"));
        let files = shell("dpkg -L seqcast");
        let files: Vec<&Path> = files.lines().map(Path::new).filter(|path| path.is_file()).collect();
        for path in ["/usr/bin/seqcast", "/etc/seqcast/param.yaml", "/usr/share/man/man1/seqcast-sub.1.gz"] {
            assert!(files.contains(&Path::new(path)), "{path} is missing: {files:?}");
        }
        assert!(shell("getent passwd seqcast").contains(":/var/lib/seqcast:/usr/sbin/nologin"));
        assert!(Path::new("/etc/systemd/system/multi-user.target.wants/seqcast.service").is_symlink());
        let unit = "/lib/systemd/system/seqcast.service";
        assert_eq!(shell(&format!("systemd-analyze verify --man=no {unit} 2>&1")), "");
        // The threshold is in tenths: an exposure above 3.0 fails.
        shell(&format!("systemd-analyze security --offline=true --threshold=30 {unit} >/dev/null"));

        // The command and the environment of the unit. Its user does not exist in this namespace.
        let settings = std::fs::read_to_string(unit).unwrap();
        let setting = |key: &str| settings.lines().find_map(|line| line.strip_prefix(key)).unwrap().to_owned();
        let (command, environment) = (setting("ExecStart="), setting("Environment="));
        shell("mkdir /run/seqcast /var/lib/seqcast");
        let peer =
            Process::start(Command::new("sh").args(["-c", &format!("{environment} exec {command} 2>/dev/null")]));
        // Users without a peer of their own reach the service.
        let status = || run_as_user(&["show", "status", "--json"]);
        wait_until("the service answers", || status().is_some());
        let report = || serde_json::from_str::<Value>(&status().unwrap()).unwrap()["status"].take();
        let status = report();
        assert_eq!(status["socket"], "/run/seqcast/seqcast.sock", "{status}");
        let loaded = |status: &Value| status["config_loaded_ns"].as_u64().unwrap();
        shell(&format!("MAINPID={}; {}", status["pid"], setting("ExecReload=")));
        wait_until("the configuration is read again", || loaded(&status) < loaded(&report()));
        // Whatever the doctor finds wrong with this namespace, it finds the service.
        let doctor =
            Command::new("/usr/bin/seqcast").arg("doctor").env_clear().env("HOME", "/run/home").output().unwrap();
        let doctor = String::from_utf8(doctor.stdout).unwrap();
        assert!(doctor.lines().next().is_some_and(|line| line.contains(" runs in ")), "{doctor}");
        drop(peer);

        shell("dpkg --no-triggers --remove seqcast >/dev/null");
        assert!(Path::new("/etc/seqcast/param.yaml").exists() && !Path::new("/usr/bin/seqcast").exists());
        shell("dpkg --no-triggers --purge seqcast >/dev/null");
        let left: Vec<_> = files.iter().filter(|path| path.exists()).collect();
        assert!(left.is_empty(), "{left:?}");
        assert!(!Path::new("/etc/seqcast").exists() && !Path::new("/var/lib/seqcast").exists());
    });
}

/// Runs the installed program with the environment of a user who runs no peer. Returns what it printed if it succeeded.
fn run_as_user(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("/usr/bin/seqcast");
    let output = command.args(arguments).env_clear().env("HOME", "/run/home").output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}
