//! Messages to the service manager (sd_notify): ready, and alive while the watchdog is on.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The socket of the service manager, if the process was started by one that waits for messages.
#[derive(Debug, Default)]
pub(crate) struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// The interval at which the watchdog expects a notification.
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// The service manager that the environment names.
    pub(crate) fn from_environment() -> ServiceManager {
        let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
        let watchdog =
            Watchdog { micros: number("WATCHDOG_USEC"), process: number("WATCHDOG_PID") };
        ServiceManager::new(std::env::var_os("NOTIFY_SOCKET"), &watchdog)
    }

    fn new(socket: Option<OsString>, watchdog: &Watchdog) -> ServiceManager {
        let opened = socket.map(|name| {
            let address = match name.as_bytes() {
                // An abstract name, without a file.
                [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
                _ => SocketAddr::from_pathname(&name),
            };
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            Ok::<_, std::io::Error>((socket, address?))
        });
        let socket = match opened.transpose() {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(%error, "the service manager's socket cannot be used");
                None
            }
        };
        let watchdog = watchdog.interval().filter(|_| socket.is_some());
        ServiceManager { socket, watchdog }
    }

    /// Reports that the server answers, and what it does.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={status}"));
    }

    /// Sends signs of life, twice in each interval of the watchdog. Runs as a task, so that they end
    /// when the runtime no longer runs tasks.
    pub(crate) async fn keep_alive(&self) {
        let Some(interval) = self.watchdog else { return };
        let mut ticks = tokio::time::interval(interval / 2);
        loop {
            ticks.tick().await;
            self.send("WATCHDOG=1");
        }
    }

    fn send(&self, message: &str) {
        let Some((socket, address)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(message.as_bytes(), address) {
            tracing::warn!(%error, "the service manager was not reached");
        }
    }
}

/// The watchdog as the environment describes it.
struct Watchdog {
    micros: Option<u64>,
    process: Option<u64>,
}

impl Watchdog {
    /// The interval at which it expects a notification from this process.
    fn interval(&self) -> Option<Duration> {
        let is_meant = self.process.is_none_or(|process| process == u64::from(std::process::id()));
        self.micros.filter(|micros| *micros > 0 && is_meant).map(Duration::from_micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(micros: Option<u64>, process: Option<u64>) -> Option<Duration> {
        Watchdog { micros, process }.interval()
    }

    #[test]
    fn the_watchdog_of_another_process_is_left_alone() {
        let own = u64::from(std::process::id());
        assert_eq!(interval(Some(2_000_000), None), Some(Duration::from_secs(2)));
        assert_eq!(interval(Some(2_000_000), Some(own)), Some(Duration::from_secs(2)));
        assert_eq!(interval(Some(2_000_000), Some(own + 1)), None);
        assert_eq!(interval(Some(0), None), None);
        assert_eq!(interval(None, Some(own)), None);
    }

    #[test]
    fn messages_reach_a_file_and_an_abstract_name() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("notify");
        let name = format!("@bursar-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name.as_bytes()[1..]).expect("a short name");
        let sockets = [
            (UnixDatagram::bind(&path).expect("it is free"), path.into_os_string()),
            (UnixDatagram::bind_addr(&address).expect("it is free"), name.into()),
        ];
        for (socket, name) in sockets {
            let manager =
                ServiceManager::new(Some(name), &Watchdog { micros: None, process: None });
            manager.ready("listening");
            let mut buffer = [0; 64];
            let length = socket.recv(&mut buffer).expect("it was sent");
            assert_eq!(&buffer[..length], b"READY=1\nSTATUS=listening");
        }
    }

    #[test]
    fn a_socket_that_cannot_be_used_is_no_failure() {
        let on = Watchdog { micros: Some(1_000_000), process: None };
        let manager = ServiceManager::new(Some("x".repeat(200).into()), &on);
        assert!(manager.socket.is_none() && manager.watchdog.is_none());
        ServiceManager::new(Some("/nowhere/notify".into()), &on).ready("listening");
    }
}
