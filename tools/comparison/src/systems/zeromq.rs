//! ZeroMQ: PUB and SUB over TCP on loopback. The publisher waits where it would drop by default.

use super::{Publisher, RECEIVE_TIMEOUT, Subscriber};
use anyhow::{Result, ensure};
use std::ffi::{c_int, c_void};

pub struct ZeromqPublisher {
    socket: zmq::Socket,
}

impl ZeromqPublisher {
    pub fn open(endpoint: &str) -> Result<ZeromqPublisher> {
        let mut socket = zmq::Context::new().socket(zmq::XPUB)?;
        wait_if_full(&mut socket)?;
        socket.bind(&format!("tcp://{endpoint}"))?;
        Ok(ZeromqPublisher { socket })
    }
}

impl Publisher for ZeromqPublisher {
    fn publish(&mut self, payload: &[u8]) -> Result<()> {
        Ok(self.socket.send(payload, 0)?)
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

pub struct ZeromqSubscriber {
    socket: zmq::Socket,
    message: zmq::Message,
}

impl ZeromqSubscriber {
    pub fn open(endpoint: &str) -> Result<ZeromqSubscriber> {
        let socket = zmq::Context::new().socket(zmq::SUB)?;
        socket.set_subscribe(b"")?;
        socket.set_rcvtimeo(RECEIVE_TIMEOUT.as_millis() as i32)?;
        socket.connect(&format!("tcp://{endpoint}"))?;
        Ok(ZeromqSubscriber { socket, message: zmq::Message::new() })
    }
}

impl Subscriber for ZeromqSubscriber {
    fn receive(&mut self, on_message: &mut dyn FnMut(&[u8])) -> Result<()> {
        match self.socket.recv(&mut self.message, 0) {
            Ok(()) => on_message(&self.message),
            Err(zmq::Error::EAGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Lets the publisher wait for a subscriber whose queue is full. The library has no method for this option.
fn wait_if_full(socket: &mut zmq::Socket) -> Result<()> {
    let on: c_int = 1;
    let value = std::ptr::from_ref(&on).cast::<c_void>();
    // SAFETY: the socket is open, and the value is read during the call only, with its own length.
    let code = unsafe {
        zmq_sys::zmq_setsockopt(socket.as_mut_ptr(), zmq_sys::ZMQ_XPUB_NODROP as c_int, value, size_of::<c_int>())
    };
    ensure!(code == 0, "ZeroMQ refuses the option XPUB_NODROP");
    Ok(())
}
