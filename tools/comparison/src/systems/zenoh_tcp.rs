//! zenoh: two peers over TCP on loopback, without scouting. The publisher waits for a slow subscriber.

use super::{Publisher, RECEIVE_TIMEOUT, SUBJECT, Subscriber};
use anyhow::{Result, anyhow};
use zenoh::handlers::FifoChannelHandler;
use zenoh::qos::CongestionControl;
use zenoh::sample::Sample;
use zenoh::{Config, Session, Wait};

/// Messages that wait for the receiving program.
const QUEUED_MAX: usize = 65536;

fn open_session(end: &str, endpoint: &str) -> Result<Session> {
    let text = format!(
        r#"{{ mode: "peer", {end}: {{ endpoints: ["tcp/{endpoint}"] }}, scouting: {{ multicast: {{ enabled: false }} }} }}"#
    );
    let config = Config::from_json5(&text).map_err(|error| anyhow!(error))?;
    zenoh::open(config).wait().map_err(|error| anyhow!(error))
}

pub struct ZenohPublisher {
    publisher: zenoh::pubsub::Publisher<'static>,
    _session: Session,
}

impl ZenohPublisher {
    pub fn open(endpoint: &str) -> Result<ZenohPublisher> {
        let session = open_session("connect", endpoint)?;
        let publisher = session.declare_publisher(SUBJECT).congestion_control(CongestionControl::Block).wait();
        Ok(ZenohPublisher { publisher: publisher.map_err(|error| anyhow!(error))?, _session: session })
    }
}

impl Publisher for ZenohPublisher {
    fn publish(&mut self, payload: &[u8]) -> Result<()> {
        self.publisher.put(payload).wait().map_err(|error| anyhow!(error))
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

pub struct ZenohSubscriber {
    subscriber: zenoh::pubsub::Subscriber<FifoChannelHandler<Sample>>,
    _session: Session,
}

impl ZenohSubscriber {
    pub fn open(endpoint: &str) -> Result<ZenohSubscriber> {
        let session = open_session("listen", endpoint)?;
        let subscriber = session.declare_subscriber(SUBJECT).with(zenoh::handlers::FifoChannel::new(QUEUED_MAX)).wait();
        Ok(ZenohSubscriber { subscriber: subscriber.map_err(|error| anyhow!(error))?, _session: session })
    }
}

impl Subscriber for ZenohSubscriber {
    fn receive(&mut self, on_message: &mut dyn FnMut(&[u8])) -> Result<()> {
        if let Ok(Some(sample)) = self.subscriber.recv_timeout(RECEIVE_TIMEOUT) {
            on_message(&sample.payload().to_bytes());
        }
        Ok(())
    }
}
