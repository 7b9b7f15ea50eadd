//! Listeners: the NSQ, HTTP, HTTPS and MQTT ports, each a TCP address or the path of a Unix socket.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::io::errors::StartError;
use crate::io::socket;

/// What is spoken on a listener's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    Nsq,
    Http,
    Https,
    Mqtt,
    Mqtts,
    MqttWs,
    MqttWss,
}

impl Speaks {
    /// Whether Python answers some of what is asked there.
    pub fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }
}

#[derive(Debug)]
enum Place {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

#[derive(Debug)]
pub struct Listener {
    pub speaks: Speaks,
    place: Place,
}

/// The ports that are listened on; `None`: not at all, or on a Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    pub tcp: Option<u16>,
    pub http: Option<u16>,
    pub https: Option<u16>,
    pub mqtt: Option<u16>,
    pub mqtts: Option<u16>,
    pub mqtt_ws: Option<u16>,
    pub mqtt_wss: Option<u16>,
}

/// Listen on every address of `config` that is not empty: all or none.
pub fn listen_all(config: &Config) -> Result<(Vec<Listener>, Ports), StartError> {
    let mut listeners = Vec::new();
    let mut listen = |field, address: &str, speaks| -> Result<_, StartError> {
        if address.is_empty() {
            return Ok(None);
        }
        let listener = Listener::bind(address, speaks).map_err(|error| StartError { field: Some(field), error })?;
        let port = listener.port();
        listeners.push(listener);
        Ok(port)
    };
    let tcp = listen("tcp_address", &config.tcp_address, Speaks::Nsq)?;
    let http = listen("http_address", &config.http_address, Speaks::Http)?;
    let https = listen("https_address", &config.https_address, Speaks::Https)?;
    let mqtt = listen("mqtt_address", &config.mqtt_address, Speaks::Mqtt)?;
    let mqtts = listen("mqtts_address", &config.mqtts_address, Speaks::Mqtts)?;
    let mqtt_ws = listen("mqtt_ws_address", &config.mqtt_ws_address, Speaks::MqttWs)?;
    let mqtt_wss = listen("mqtt_wss_address", &config.mqtt_wss_address, Speaks::MqttWss)?;
    Ok((listeners, Ports { tcp, http, https, mqtt, mqtts, mqtt_ws, mqtt_wss }))
}

impl Listener {
    /// An address that does not read as HOST:PORT is the path of a Unix socket, as in nsqd.
    fn bind(address: &str, speaks: Speaks) -> io::Result<Self> {
        let place = if is_host_and_port(address) {
            Place::Tcp(socket::listen(address)?)
        } else {
            let path = PathBuf::from(address);
            remove_dead_socket(&path)?;
            let listener = UnixListener::bind(&path)?;
            listener.set_nonblocking(true)?;
            Place::Unix(listener, path)
        };
        Ok(Self { speaks, place })
    }

    pub fn port(&self) -> Option<u16> {
        match &self.place {
            Place::Tcp(listener) => listener.local_addr().ok().map(|address| address.port()),
            Place::Unix(..) => None,
        }
    }

    /// Accepts the next connection and returns its peer's address, if it has one. `None`: none waits.
    ///
    /// The connection stays in blocking mode: `socket::receive` and `socket::send` pass a flag with each call, which
    /// saves a call here.
    pub fn accept(&self) -> io::Result<Option<(OwnedFd, Option<SocketAddr>)>> {
        let accepted = match &self.place {
            Place::Tcp(listener) => listener.accept().map(|(stream, address)| (stream.into(), Some(address))),
            Place::Unix(listener, _) => listener.accept().map(|(stream, _)| (stream.into(), None)),
        };
        match accepted {
            Ok(accepted) => Ok(Some(accepted)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        match &self.place {
            Place::Tcp(listener) => listener.as_raw_fd(),
            Place::Unix(listener, _) => listener.as_raw_fd(),
        }
    }
}

/// A Unix socket's file goes with its listener. (Whether it is still there is not ours to decide.)
impl Drop for Listener {
    fn drop(&mut self) {
        if let Place::Unix(_, path) = &self.place {
            let _ = fs::remove_file(path);
        }
    }
}

fn is_host_and_port(address: &str) -> bool {
    let Some((host, _)) = address.rsplit_once(':') else { return false };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    !address.contains('/') && (bare.is_some() || !host.contains(':'))
}

/// A process that was killed leaves the file of its socket behind: nobody listens there any more.
fn remove_dead_socket(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
        fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_host_and_port_is_a_path() {
        for address in ["127.0.0.1:4150", ":4150", "[::1]:4150", "host:http"] {
            assert!(is_host_and_port(address), "{address}");
        }
        for path in ["/run/nsqd.sock", "nsqd.sock", "::1", "/a:1", "a:b:c", ""] {
            assert!(!is_host_and_port(path), "{path}");
        }
    }
}
