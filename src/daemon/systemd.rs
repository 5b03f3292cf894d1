//! Notifications of a peer to systemd, or to another service manager with its protocol (`sd_notify(3)`): that the peer
//! is ready, its status, that its loop runs, that it reads its configuration again, and that it stops.
//!
//! The engine's loop sends all of them, so a loop that is stuck ends the watchdog's notifications. Each is a datagram to
//! the Unix socket that the environment names. Once the peer runs, a full socket discards it: the loop never blocks.

use crate::clock::monotonic_micros;
use crate::time::Instant;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Minimum time between two status texts.
const STATUS_INTERVAL: Duration = Duration::from_secs(3);

/// The connection to systemd.
#[derive(Debug)]
pub(super) struct SystemdNotifier {
    socket: UnixDatagram,
    /// Interval of the watchdog's notifications, if systemd expects any.
    watchdog_interval: Option<Duration>,
    next_watchdog: Instant,
    /// Last status text that was sent.
    status: String,
    /// Time of the next status text; `None` once the peer stops.
    next_status: Option<Instant>,
    /// True if a notification was lost; this is logged once.
    has_failed: bool,
}

impl SystemdNotifier {
    /// Connects to the socket that the environment names. Returns `None` if it names none, or none that exists: systemd
    /// then ends the peer after its time limit for a start, and the log says why.
    pub(super) fn connect(now: Instant) -> Option<SystemdNotifier> {
        let path = std::env::var_os("NOTIFY_SOCKET")?;
        let variable = |name| std::env::var(name).ok();
        let watchdog = watchdog_time(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"), std::process::id());
        let socket = connect_to(&path).inspect_err(
            |error| tracing::warn!(%error, socket = %path.display(), "systemd cannot be notified of the state of this peer"),
        );
        Some(SystemdNotifier {
            socket: socket.ok()?,
            // As sd_watchdog_enabled(3) recommends.
            watchdog_interval: watchdog.map(|time| time / 2),
            next_watchdog: now,
            status: String::new(),
            next_status: Some(now),
            has_failed: false,
        })
    }

    /// Notifies systemd that the peer is ready. Everything that the unit orders after the peer starts now.
    pub(super) fn notify_ready(&mut self, now: Instant, status: String) {
        // The socket still blocks here: the loss of this notification would end the peer.
        self.send(&format!("READY=1\nSTATUS={status}"));
        self.status = status;
        self.next_status = Some(now + STATUS_INTERVAL);
        if let Err(error) = self.socket.set_nonblocking(true) {
            tracing::warn!(%error, "notifications of systemd may block this peer");
        }
    }

    /// Notifies systemd that the peer reads its configuration again. [`SystemdNotifier::notify_reloaded`] must follow:
    /// until then `systemctl reload` waits.
    pub(super) fn notify_reloading(&mut self) {
        if !self.is_stopping() {
            self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_micros()));
        }
    }

    /// Notifies systemd that the configuration was read again, whether or not it was refused.
    pub(super) fn notify_reloaded(&mut self) {
        if !self.is_stopping() {
            self.send("READY=1");
        }
    }

    /// Returns whether systemd knows that the peer stops. It then expects no other state.
    fn is_stopping(&self) -> bool {
        self.next_status.is_none()
    }

    /// Notifies systemd that the peer has begun to stop.
    pub(super) fn notify_stopping(&mut self) {
        self.next_status = None;
        self.send("STOPPING=1\nSTATUS=stopping");
    }

    /// Sends the notifications that are due in this turn of the loop: the watchdog's, and the status if it has changed.
    pub(super) fn on_turn(&mut self, now: Instant, status: impl FnOnce() -> String) {
        if let Some(interval) = self.watchdog_interval
            && self.next_watchdog <= now
        {
            self.next_watchdog = now + interval;
            self.send("WATCHDOG=1");
        }
        if self.next_status.is_some_and(|next| next <= now) {
            self.next_status = Some(now + STATUS_INTERVAL);
            let status = status();
            if status != self.status {
                self.send(&format!("STATUS={status}"));
                self.status = status;
            }
        }
    }

    /// Returns the time of the next turn that must send or check something.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let watchdog = self.watchdog_interval.map(|_| self.next_watchdog);
        watchdog.into_iter().chain(self.next_status).min()
    }

    fn send(&mut self, notification: &str) {
        if let Err(error) = self.socket.send(notification.as_bytes())
            && !self.has_failed
        {
            self.has_failed = true;
            tracing::warn!(%error, notification, "systemd did not receive a notification; further ones are not logged");
        }
    }
}

/// Connects to a socket by its path, or by its abstract name, which begins with `@`.
fn connect_to(path: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match path.as_bytes() {
        [b'@', name @ ..] => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        _ => socket.connect(path)?,
    }
    Ok(socket)
}

/// Returns the time after which systemd ends a peer that has not notified it, given the variables of the environment.
/// Variables that are meant for another process do not count.
fn watchdog_time(micros: Option<String>, pid: Option<String>, own_pid: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid != own_pid.to_string()) {
        return None;
    }
    let micros = micros?.parse().ok().filter(|micros| 0 < *micros)?;
    Some(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_of_another_process_is_ignored() {
        let time = |micros: &str, pid: Option<&str>| watchdog_time(Some(micros.into()), pid.map(str::to_owned), 7);
        assert_eq!(time("30000000", None), Some(Duration::from_secs(30)));
        assert_eq!(time("30000000", Some("7")), Some(Duration::from_secs(30)));
        assert_eq!(time("30000000", Some("8")), None);
        assert_eq!([time("0", None), time("-1", None), time("soon", None)], [None; 3]);
        assert_eq!(watchdog_time(None, Some("7".into()), 7), None);
    }

    #[test]
    fn due_notifications_are_sent_once() {
        let (socket, received) = UnixDatagram::pair().unwrap();
        received.set_nonblocking(true).unwrap();
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let mut notifier = SystemdNotifier {
            socket,
            watchdog_interval: Some(Duration::from_secs(1)),
            next_watchdog: at(0),
            status: String::new(),
            next_status: Some(at(0)),
            has_failed: false,
        };
        let take = || {
            let mut bytes = [0; 100];
            received.recv(&mut bytes).ok().map(|count| String::from_utf8(bytes[..count].to_vec()).unwrap())
        };
        let turn = |notifier: &mut SystemdNotifier, millis: u64, status: &str| {
            notifier.on_turn(at(millis), || status.to_owned());
            (take(), take())
        };
        let text = |text: &str| Some(text.to_owned());
        notifier.notify_ready(at(0), "0 peers".to_owned());
        assert_eq!(turn(&mut notifier, 0, "1 peer"), (text("READY=1\nSTATUS=0 peers"), text("WATCHDOG=1")));
        assert_eq!(turn(&mut notifier, 999, "1 peer"), (None, None));
        assert_eq!(notifier.deadline(), Some(at(1000)));
        assert_eq!(turn(&mut notifier, 3000, "1 peer"), (text("WATCHDOG=1"), text("STATUS=1 peer")));
        assert_eq!(turn(&mut notifier, 6000, "1 peer"), (text("WATCHDOG=1"), None));
        notifier.notify_reloading();
        assert!(take().unwrap().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        notifier.notify_reloaded();
        assert_eq!(take(), text("READY=1"));
        notifier.notify_stopping();
        assert_eq!(turn(&mut notifier, 9000, "2 peers"), (text("STOPPING=1\nSTATUS=stopping"), text("WATCHDOG=1")));
        assert_eq!(notifier.deadline(), Some(at(10_000)));
        notifier.notify_reloading();
        notifier.notify_reloaded();
        assert_eq!(take(), None, "a stopping peer is not ready again");
    }

    #[test]
    fn unread_socket_does_not_block_the_loop() {
        let (socket, _unread) = UnixDatagram::pair().unwrap();
        let mut notifier = SystemdNotifier {
            socket,
            watchdog_interval: Some(Duration::from_nanos(1)),
            next_watchdog: Instant::ZERO,
            status: String::new(),
            next_status: None,
            has_failed: false,
        };
        notifier.notify_ready(Instant::ZERO, "0 peers".to_owned());
        for turn in 0..10_000 {
            notifier.on_turn(Instant::from_nanos(turn), || "0 peers".to_owned());
        }
        assert!(notifier.has_failed, "the socket has room for all notifications");
    }
}
