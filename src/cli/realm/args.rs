//! The arguments of `init`, `join` and `realm`, and the texts below their help.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};

use crate::message::PeerName;
use crate::security::realm::{Fingerprint, RealmMode, RealmName};
use crate::subject::Pattern;
use crate::terminal::value;

/// Minimum validity of a certificate.
const VALIDITY_MIN: Duration = Duration::from_secs(60);

/// Below `seqcast init --help`.
pub const INIT_HELP: &str = "\
Examples:
  seqcast init --realm plant1                       makes the realm plant1, and the keys of this host
  seqcast init --realm plant1 --mode pki            makes also the key of the authority, which admits hosts
  sudo -u seqcast seqcast init --data-dir /var/lib/seqcast    makes them for the service

From its next start on, a peer of this host seals its datagrams and admits only members of the realm (see the key \
'security'). The command makes files that their owner alone can read, in the directory \
'realm' of data-dir, and never replaces any. It prints no secret.

In the mode realm, a host that knows the realm's secret is a member; the others remember its name and keys. In the mode \
pki, a host also needs a certificate that the authority signs, with a name, permissions and an end of validity.";

/// Below `seqcast join --help`.
pub const JOIN_HELP: &str = "\
Examples:
  seqcast join -                                    asks for the line of 'seqcast realm invite', without showing it
  ssh first.host seqcast realm invite | seqcast join -
  seqcast join seqcast-certificate:c2VxY2VydAE…     installs the certificate that the authority signed

From its next start on, a peer of this host is a member of the realm. A join line is a secret: other users of the host see it in the list of \
processes, and the shell stores it in its history. Therefore use - with it. Certificates are no secret.

On a host that is in the realm already, the line of another secret ('seqcast realm rotate') replaces the secret; keys, \
certificate and names stay. 'seqcast config reload' makes a running peer use a new secret or certificate.

In the mode pki, 'seqcast join -' prints a request, which is no secret. 'seqcast realm sign' on the authority's host \
turns it into a certificate, and 'seqcast join' installs that.";

/// Below `seqcast realm --help`.
pub const REALM_HELP: &str = "\
Examples:
  seqcast realm show
  seqcast realm invite | ssh other.host seqcast join -";

const INVITE_HELP: &str = "\
Examples:
  seqcast realm invite                              prints the join line, for 'seqcast join -' on another host
  seqcast realm invite | ssh other.host seqcast join -

The line holds the secret of the realm, and is valid as long as the realm exists. In the mode realm its reader can join \
the realm, read every message and publish any. In the mode pki its reader also needs a certificate.";

const SHOW_HELP: &str = "\
Examples:
  seqcast realm show
  seqcast realm show --json | jq -r .fingerprint

The report has the realm, this host's name and fingerprint, its permissions and their validity, and the hosts that this \
one knows. On the authority's host it also lists the admitted hosts. In the mode pki it has the request of this host \
until a certificate is installed. It holds no secret.";

const SIGN_HELP: &str = "\
Examples:
  seqcast realm sign seqcast-request:c2VxY2VydAE… --name B.test --publish 'line.>' --subscribe 'cmd.>,line.>'
  seqcast realm sign - --name B.test --publish '>' --subscribe '>' --valid 90d < request

The command prints the certificate, for 'seqcast join' on the host of the request. Before you use it, compare the \
fingerprint on standard error with that of 'seqcast realm show' on that host: the request may come from another host.

Without --publish the host may not publish, and without --subscribe it may not receive. A comma separates patterns. \
The certificate is valid from one hour ago, for hosts whose clocks are slow.";

const FORGET_HELP: &str = "\
Examples:
  seqcast realm forget B.test                       for a host that was set up again and has new keys

The next host that uses the name is remembered with its keys.";

const REVOKE_HELP: &str = "\
Examples:
  seqcast realm revoke B.test                       other hosts no longer trust the keys of B.test
  seqcast realm revoke B.test --fingerprint SHA256:vYz…    the same with keys that the host had before

The command signs the list of revoked hosts, on the host that has the key of the authority. The list has the keys of \
the last certificate that the authority has signed for the name. The name can be given to other keys afterwards \
('seqcast realm sign').

After 'seqcast config reload' the peer of this host refuses the revoked host, and draws new keys for the others. Their \
peers get the list from it, and from each other.

In the mode realm nothing can be revoked, because everybody who knows the secret can join under a new name: see \
'seqcast realm rotate'.";

const ROTATE_HELP: &str = "\
Examples:
  seqcast realm rotate
  seqcast realm invite | ssh other.host seqcast join - --replace-secret      then passes the new secret on

The command draws a new secret of the realm. Each other host needs it for its next handshake, so run 'seqcast join - \
--replace-secret' on each of them. Keys, certificates and names of hosts stay. It prints no secret.

After 'seqcast config reload' a running peer uses the new secret for new handshakes. It keeps the keys that it has \
agreed upon with others until one of them changes its keys, within 24 hours. Peers inside of programs get the secret \
when their programs start again. A host that does not get the new secret is shut out at once if the peers of all others \
are restarted.";

/// The files of the realm.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Files")]
pub struct RealmFileOptions {
    /// The data directory of the peer (default: the key data-dir of the configuration).
    #[arg(long, value_name = "DIRECTORY")]
    pub data_dir: Option<PathBuf>,
    /// The configuration file of the peer (default: the one that SEQCAST_CONFIG names).
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `seqcast init`.
#[derive(Args, Clone, Debug)]
pub struct InitOptions {
    /// The name of the realm for people.
    #[arg(long, value_name = "NAME", default_value = "lan")]
    pub realm: RealmName,
    /// The rule by which hosts are admitted.
    #[arg(long, default_value = "realm", value_parser = mode_parser())]
    pub mode: RealmMode,
    /// The name of this host's peer (default: the key name of the configuration).
    #[arg(long, value_name = "PEER")]
    pub name: Option<PeerName>,
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// The files.
    #[command(flatten)]
    pub files: RealmFileOptions,
}

/// `seqcast join`.
#[derive(Args, Clone, Debug)]
pub struct JoinOptions {
    /// The line of 'seqcast realm invite' or of 'seqcast realm sign'; - reads it from standard input.
    #[arg(required = true, num_args = 1..)]
    pub line: Vec<String>,
    /// The name of this host's peer (default: the key name of the configuration); the authority may choose another.
    #[arg(long, value_name = "PEER")]
    pub name: Option<PeerName>,
    /// Replace the secret of the realm of this host, after 'seqcast realm rotate' on another one.
    #[arg(long)]
    pub replace_secret: bool,
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// The files.
    #[command(flatten)]
    pub files: RealmFileOptions,
}

/// `seqcast realm`.
#[derive(Args, Clone, Debug)]
pub struct RealmOptions {
    /// The command.
    #[command(subcommand)]
    pub what: RealmCommand,
}

/// The commands of `seqcast realm`.
#[derive(Clone, Debug, Subcommand)]
pub enum RealmCommand {
    /// Print the join line of the realm, which is a secret.
    #[command(after_help = INVITE_HELP)]
    Invite(RealmReportOptions),
    /// Show the realm of this host, its name and fingerprint, and the hosts that it knows.
    #[command(after_help = SHOW_HELP)]
    Show(RealmReportOptions),
    /// Sign the request of a host with the authority's key, and print the certificate.
    #[command(after_help = SIGN_HELP)]
    Sign(SignOptions),
    /// Forget the keys of a host, so that its name can be used with new ones.
    #[command(after_help = FORGET_HELP)]
    Forget(ForgetOptions),
    /// Revoke the keys of a host, so that no other host trusts them; in the mode pki.
    #[command(after_help = REVOKE_HELP)]
    Revoke(RevokeOptions),
    /// Draw a new secret of the realm.
    #[command(after_help = ROTATE_HELP)]
    Rotate(RealmReportOptions),
}

/// `seqcast realm invite`, `seqcast realm show` and `seqcast realm rotate`.
#[derive(Args, Clone, Debug)]
pub struct RealmReportOptions {
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// The files.
    #[command(flatten)]
    pub files: RealmFileOptions,
}

/// `seqcast realm sign`.
#[derive(Args, Clone, Debug)]
pub struct SignOptions {
    /// The line that 'seqcast join' printed on the other host; - reads it from standard input.
    #[arg(required = true, num_args = 1..)]
    pub request: Vec<String>,
    /// The name of the host's peer.
    #[arg(long, value_name = "PEER")]
    pub name: PeerName,
    /// Patterns of subjects on which the host may publish. Peers do not check them yet.
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    pub publish: Vec<Pattern>,
    /// Patterns of subjects that the host may receive. Peers do not check them yet.
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    pub subscribe: Vec<Pattern>,
    /// Time from now until the certificate expires, such as 90d or 1y.
    #[arg(long, value_name = "TIME", value_parser = validity, default_value = "1y")]
    pub valid: Duration,
    /// Sign also if the name is that of a host with other keys, which this one replaces.
    #[arg(long)]
    pub replace: bool,
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// The files.
    #[command(flatten)]
    pub files: RealmFileOptions,
}

/// `seqcast realm forget`.
#[derive(Args, Clone, Debug)]
pub struct ForgetOptions {
    /// The name.
    #[arg(value_name = "PEER")]
    pub name: PeerName,
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// The files.
    #[command(flatten)]
    pub files: RealmFileOptions,
}

/// `seqcast realm revoke`.
#[derive(Args, Clone, Debug)]
pub struct RevokeOptions {
    /// The name in the certificate of the host.
    #[arg(value_name = "PEER")]
    pub name: PeerName,
    /// The keys to revoke, if the authority has given the name to others since.
    #[arg(long, value_name = "SHA256:…")]
    pub fingerprint: Option<Fingerprint>,
    /// Print a JSON object.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// The files.
    #[command(flatten)]
    pub files: RealmFileOptions,
}

/// Reads the validity of a certificate.
fn validity(text: &str) -> Result<Duration, String> {
    match value::wait(text)? {
        time if time < VALIDITY_MIN => Err("a certificate is valid for a minute or longer, such as 90d".to_owned()),
        time => Ok(time),
    }
}

fn mode_parser() -> impl TypedValueParser<Value = RealmMode> {
    let mode = |name: String| RealmMode::ALL.into_iter().find(|mode| mode.as_str() == name);
    PossibleValuesParser::new(RealmMode::ALL.map(RealmMode::as_str))
        .map(move |name| mode(name).expect("the parser accepts the names of modes only"))
}
