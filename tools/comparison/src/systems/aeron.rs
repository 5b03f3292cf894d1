//! Aeron: shared memory, or multicast on loopback. Its media driver is a process of its own.

use super::{Place, Publisher, Subscriber};
use crate::server::{Server, free_port};
use anyhow::{Context, Result};
use rusteron_client::{Aeron, AeronContext, AeronExclusivePublication, AeronSubscription, Handlers, IntoCString};
use rusteron_media_driver::{AeronDriver, AeronDriverContext};
use std::ffi::CStr;
use std::io::Read;
use std::process::Command;
use std::time::{Duration, Instant};

pub const IPC: &CStr = c"aeron:ipc";
pub const MULTICAST: &CStr = c"aeron:udp?endpoint=239.254.188.61:22093|interface=127.0.0.1";

const STREAM: i32 = 1001;
/// Time in which the driver must answer.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(10);
/// Messages that one poll passes on at most.
const FRAGMENTS_MAX: usize = 256;

/// Starts a media driver with datagrams of at most `mtu` bytes.
pub fn start(mtu: usize) -> Result<Place> {
    let directory = std::env::temp_dir().join(format!("comparison-aeron-{}", free_port()?)).display().to_string();
    let mut command = Command::new(std::env::current_exe()?);
    let server = Server::start(command.args(["aeron-driver", &directory, &mtu.to_string()]))?;
    let (begin, file) = (Instant::now(), std::path::Path::new(&directory).join("cnc.dat"));
    while !file.exists() && begin.elapsed() < DRIVER_TIMEOUT {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(Place { endpoint: directory, _server: Some(server) })
}

/// Runs a media driver until the input ends.
pub fn run_driver(directory: &str, mtu: usize) -> Result<()> {
    let context = AeronDriverContext::new()?;
    context.set_dir_delete_on_start(true)?;
    context.set_dir_delete_on_shutdown(true)?;
    context.set_dir(&directory.into_c_string())?;
    context.set_mtu_length(mtu)?;
    let driver = AeronDriver::new(&context)?;
    driver.start(false)?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn connect(directory: &str) -> Result<Aeron> {
    let context = AeronContext::new()?;
    context.set_dir(&directory.into_c_string())?;
    let aeron = Aeron::new(&context)?;
    aeron.start()?;
    Ok(aeron)
}

pub struct AeronPublisher {
    publication: AeronExclusivePublication,
    _aeron: Aeron,
}

impl AeronPublisher {
    pub fn open(directory: &str, channel: &CStr) -> Result<AeronPublisher> {
        let aeron = connect(directory)?;
        let publication = aeron.async_add_exclusive_publication(channel, STREAM)?.poll_blocking(DRIVER_TIMEOUT)?;
        Ok(AeronPublisher { publication, _aeron: aeron })
    }
}

impl Publisher for AeronPublisher {
    fn publish(&mut self, payload: &[u8]) -> Result<()> {
        loop {
            match self.publication.offer(payload) {
                Ok(_) => return Ok(()),
                Err(error) if error.is_retryable() => std::thread::yield_now(),
                Err(error) => return Err(error).context("Aeron refuses a message"),
            }
        }
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

pub struct AeronSubscriber {
    subscription: AeronSubscription,
    _aeron: Aeron,
}

impl AeronSubscriber {
    pub fn open(directory: &str, channel: &CStr) -> Result<AeronSubscriber> {
        let aeron = connect(directory)?;
        let subscription = aeron.async_add_subscription(channel, STREAM, Handlers::NONE, Handlers::NONE)?;
        Ok(AeronSubscriber { subscription: subscription.poll_blocking(DRIVER_TIMEOUT)?, _aeron: aeron })
    }
}

impl Subscriber for AeronSubscriber {
    fn receive(&mut self, on_message: &mut dyn FnMut(&[u8])) -> Result<()> {
        if self.subscription.poll_fn(|payload, _| on_message(payload), FRAGMENTS_MAX)? == 0 {
            std::thread::yield_now();
        }
        Ok(())
    }
}
