//! Keys of the streams of other sites.

use super::envelope::LinkEnvelope;
use super::site_name::SiteName;
use crate::message::Epoch;
use crate::subject::Subject;

/// Key of a stream of another site. It names the site, since a site may claim any publisher.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RemoteStreamKey {
    pub(super) site: SiteName,
    pub(super) publisher: Epoch,
    pub(super) subject: Subject,
}

impl RemoteStreamKey {
    /// Returns the key of the stream of a message.
    pub(super) fn new(origin: &LinkEnvelope, subject: &Subject) -> RemoteStreamKey {
        RemoteStreamKey { site: origin.site.clone(), publisher: origin.publisher.epoch, subject: subject.clone() }
    }

    /// Returns a copy that does not retain the memory of a whole datagram.
    pub(super) fn detached(&self) -> RemoteStreamKey {
        RemoteStreamKey { subject: self.subject.detached(), ..self.clone() }
    }
}
