//! iceoryx2: shared memory without a server. A publisher waits for a subscriber whose buffer is full.

use super::{Publisher, Subscriber};
use anyhow::Result;
use iceoryx2::port::publisher::Publisher as Port;
use iceoryx2::port::subscriber::Subscriber as SubscriberPort;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;

type Service = ipc::Service;

/// Messages that wait for a subscriber.
const BUFFERED_MAX: usize = 1024;

fn open_service(name: &str) -> Result<PortFactory<Service, [u8], ()>> {
    set_log_level(LogLevel::Error);
    // The service keeps its node.
    let node = NodeBuilder::new().create::<Service>()?;
    let service = node.service_builder(&name.try_into()?).publish_subscribe::<[u8]>();
    let service = service.enable_safe_overflow(false).subscriber_max_buffer_size(BUFFERED_MAX).open_or_create()?;
    Ok(service)
}

pub struct IceoryxPublisher {
    port: Port<Service, [u8], ()>,
}

impl IceoryxPublisher {
    pub fn open(name: &str, size: usize) -> Result<IceoryxPublisher> {
        let service = open_service(name)?;
        let builder = service.publisher_builder().initial_max_slice_len(size);
        let port = builder.backpressure_strategy(BackpressureStrategy::RetryUntilDelivered).create()?;
        Ok(IceoryxPublisher { port })
    }
}

impl Publisher for IceoryxPublisher {
    fn publish(&mut self, payload: &[u8]) -> Result<()> {
        self.port.loan_slice_uninit(payload.len())?.write_from_slice(payload).send()?;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

pub struct IceoryxSubscriber {
    port: SubscriberPort<Service, [u8], ()>,
}

impl IceoryxSubscriber {
    pub fn open(name: &str) -> Result<IceoryxSubscriber> {
        Ok(IceoryxSubscriber { port: open_service(name)?.subscriber_builder().create()? })
    }
}

impl Subscriber for IceoryxSubscriber {
    fn receive(&mut self, on_message: &mut dyn FnMut(&[u8])) -> Result<()> {
        let mut is_idle = true;
        while let Some(sample) = self.port.receive()? {
            on_message(sample.payload());
            is_idle = false;
        }
        if is_idle {
            std::thread::yield_now();
        }
        Ok(())
    }
}
