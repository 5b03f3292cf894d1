//! Target `link`: lines of the hub into the decoders of the links, and what they accept into a ledger.

use crate::link::bye::GatewayBye;
use crate::link::durable::RestoreRequest;
use crate::link::envelope::LinkEnvelope;
use crate::link::import::ImportLedger;
use crate::link::manifest::ManifestBatch;
use crate::subject::Subject;

/// Decodes each line as an envelope, as manifests, as a BYE and as a request for lost messages. Whatever is read is
/// written and read in the same way, and no order of messages, manifests and BYEs makes the ledger fail. A line that
/// begins with `+` is a message that another gateway of the site has imported.
pub fn link(bytes: &[u8]) {
    let subject: Subject = "plant.press.1".parse().expect("a constant that is a subject");
    let mut ledger = ImportLedger::new("home".parse().expect("a constant that is a name"));
    for line in bytes.split(|byte| *byte == b'\n') {
        let (line, is_imported) = line.strip_prefix(b"+").map_or((line, false), |line| (line, true));
        if let Some(Ok(envelope)) = std::str::from_utf8(line).ok().map(LinkEnvelope::from_value) {
            assert_eq!(LinkEnvelope::from_value(&envelope.to_value()).as_ref(), Ok(&envelope));
            if is_imported {
                ledger.on_imported(&envelope, &subject);
            } else {
                ledger.on_message(&envelope, &subject);
            }
        }
        if let Ok(batch) = ManifestBatch::from_json(line) {
            let written = batch.to_json().expect("it has manifests");
            assert_eq!(ManifestBatch::from_json(&written).as_ref(), Ok(&batch));
            for manifest in batch {
                ledger.on_heard(&manifest.site, manifest.gateway);
                ledger.on_manifest(&manifest, |_| true);
                ledger.on_gateway_end(&manifest.site, manifest.gateway);
            }
        }
        if let Ok(bye) = GatewayBye::from_json(line) {
            assert_eq!(GatewayBye::from_json(&bye.to_json()).as_ref(), Ok(&bye));
            ledger.on_bye(&bye);
        }
        if let Some(request) = RestoreRequest::from_json(line) {
            assert_eq!(RestoreRequest::from_json(&request.to_json()).as_ref(), Some(&request));
            let messages: Vec<_> = request.messages().collect();
            let mut written = RestoreRequest::default();
            messages.iter().for_each(|missing| written.push(missing));
            assert_eq!(written.messages().collect::<Vec<_>>(), messages);
        }
    }
}
