//! The page, compiled in: it loads nothing from anywhere else.

/// A file of the page.
#[derive(Debug)]
pub(super) struct PageAsset {
    path: &'static str,
    pub(super) content_type: &'static str,
    pub(super) content: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

const fn asset(path: &'static str, content_type: &'static str, content: &'static str) -> PageAsset {
    PageAsset { path, content_type, content }
}

static ASSETS: [PageAsset; 19] = [
    asset("/", HTML, include_str!("page/index.html")),
    asset("/page.css", STYLE, include_str!("page/page.css")),
    asset("/icon.svg", IMAGE, include_str!("page/icon.svg")),
    asset("/app.js", SCRIPT, include_str!("page/app.js")),
    asset("/dom.js", SCRIPT, include_str!("page/dom.js")),
    asset("/format.js", SCRIPT, include_str!("page/format.js")),
    asset("/lan.js", SCRIPT, include_str!("page/lan.js")),
    asset("/losses.js", SCRIPT, include_str!("page/losses.js")),
    asset("/messages.js", SCRIPT, include_str!("page/messages.js")),
    asset("/peer.js", SCRIPT, include_str!("page/peer.js")),
    asset("/picture.js", SCRIPT, include_str!("page/picture.js")),
    asset("/plots.js", SCRIPT, include_str!("page/plots.js")),
    asset("/report.js", SCRIPT, include_str!("page/report.js")),
    asset("/sites.js", SCRIPT, include_str!("page/sites.js")),
    asset("/state.js", SCRIPT, include_str!("page/state.js")),
    asset("/views.js", SCRIPT, include_str!("page/views.js")),
    asset("/uplot.js", SCRIPT, include_str!("page/uplot.js")),
    asset("/uplot.css", STYLE, include_str!("page/uplot.css")),
    asset("/uplot.LICENSE", TEXT, include_str!("page/uplot.LICENSE")),
];

/// Returns the file with a path, compared byte for byte.
pub(super) fn find_asset(path: &str) -> Option<&'static PageAsset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_refers_to_nothing_outside() {
        for asset in &ASSETS {
            // The library and its licence name its home in a comment.
            if !asset.path.starts_with("/uplot") && asset.path != "/icon.svg" {
                let text = asset.content.replace("http://www.w3.org/2000/svg", "");
                assert!(!text.contains("://"), "{} refers to another site", asset.path);
            }
        }
    }

    #[test]
    fn scripts_and_styles_of_the_page_are_served() {
        for asset in ASSETS.iter().filter(|asset| [HTML, SCRIPT].contains(&asset.content_type)) {
            let names = asset.content.split('"').skip(1).step_by(2);
            for name in names.filter(|name| name.starts_with('/') && (name.ends_with(".js") || name.ends_with(".css")))
            {
                assert!(find_asset(name).is_some(), "{} refers to {name}", asset.path);
            }
        }
        assert!(
            find_asset("/")
                .is_some_and(|index| !index.content.contains("<style") && !index.content.contains("onclick"))
        );
    }
}
