//! Checks that the modules of the library import each other without circles.
//!
//! A module and the modules below it may use each other: children extend a type of their parent, and the parent calls
//! them. But siblings may not use each other in a circle, and no circle may lead through a module outside of the
//! parent.

use super::source::{code, without_tests};
use super::{assert_tidy, is_test, module, paths, rust, within};
use std::collections::{BTreeMap, BTreeSet};

/// Modules by name, each with the modules that it uses.
type ModuleGraph = BTreeMap<String, BTreeSet<String>>;

/// Returns the modules that a file uses: by paths that begin with `crate`, `super` or `self`, or with the name of a
/// child. Uses for documentation alone do not count.
fn used_modules(own: &str, text: &str, modules: &BTreeSet<String>) -> BTreeSet<String> {
    let code = without_tests(&code(text)).replace("#[cfg(doc)]", "#[cfg(test)]");
    let code = without_tests(&code);
    let mut used = paths(&code, "crate::");
    let parent = |levels: usize| own.rsplitn(levels + 1, "::").last().unwrap_or_default().to_owned();
    let mut relative = |prefix: &str, base: &str| {
        used.extend(paths(&code, prefix).into_iter().map(|path| format!("{base}::{path}")));
    };
    relative("self::", own);
    if 1 <= own.matches("::").count() {
        relative("super::", &parent(1));
    }
    if 2 <= own.matches("::").count() {
        relative("super::super::", &parent(2));
    }
    let children = modules.iter().filter(|module| parent_of(module) == Some(own));
    for name in children.filter_map(|child| child.rsplit("::").next()) {
        relative(&format!("{name}::"), &format!("{own}::{name}"));
    }
    let module_of = |path: &String| {
        let ends = path.match_indices("::").map(|(at, _)| at).chain([path.len()]);
        let prefixes: Vec<&str> = ends.map(|end| &path[..end]).collect();
        prefixes.into_iter().rev().find(|prefix| modules.contains(*prefix)).map(str::to_owned)
    };
    used.iter().filter_map(module_of).filter(|used| used != own).collect()
}

fn parent_of(module: &str) -> Option<&str> {
    module.rsplit_once("::").map(|(parent, _)| parent)
}

fn module_graph(files: &[(&str, &str)]) -> ModuleGraph {
    let modules: BTreeSet<String> = files.iter().map(|(path, _)| module(path)).collect();
    let uses = |(path, text): &(&str, &str)| {
        let own = module(path);
        let used = used_modules(&own, text, &modules);
        (own, used)
    };
    files.iter().map(uses).collect()
}

/// Returns the modules that `from` reaches.
fn reachable(graph: &ModuleGraph, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![from.to_owned()];
    while let Some(module) = open.pop() {
        for used in graph.get(&module).into_iter().flatten() {
            if found.insert(used.clone()) {
                open.push(used.clone());
            }
        }
    }
    found
}

/// Returns the strongly connected components: each set of modules that all reach each other.
fn components(graph: &ModuleGraph) -> BTreeSet<BTreeSet<String>> {
    let reached: BTreeMap<&String, BTreeSet<String>> =
        graph.keys().map(|module| (module, reachable(graph, module))).collect();
    let component = |module: &&String| {
        let is_mutual = |other: &&String| reached.get(*other).is_some_and(|others| others.contains(*module));
        reached[*module].iter().filter(is_mutual).cloned().collect::<BTreeSet<String>>()
    };
    reached.keys().map(component).filter(|component| !component.is_empty()).collect()
}

/// Returns the circles. Of a component that consists of a module and modules below it, these are the circles that
/// remain without the uses of modules above.
fn circles(graph: &ModuleGraph) -> BTreeSet<BTreeSet<String>> {
    let mut circles = BTreeSet::new();
    for component in components(graph) {
        if !component.iter().any(|root| component.iter().all(|module| within(module, root))) {
            circles.insert(component);
            continue;
        }
        let downward = |own: &String| {
            let used = graph[own].iter().filter(|used| component.contains(*used) && !within(own, used));
            (own.clone(), used.cloned().collect())
        };
        circles.extend(components(&component.iter().map(downward).collect()));
    }
    circles
}

/// Complains about circles.
fn check_circles(files: &[(&str, &str)]) -> Vec<String> {
    let complaint = |circle: &BTreeSet<String>| format!("these modules use each other in a circle: {circle:?}");
    circles(&module_graph(files)).iter().map(complaint).collect()
}

#[test]
fn modules_use_each_other_without_circles() {
    let source = rust();
    let library = source.iter().filter(|file| file.path.starts_with("src/") && !is_test(&file.path));
    let library = library.filter(|file| !["src/lib.rs", "src/main.rs"].contains(&file.path.as_str()));
    let files: Vec<(&str, &str)> = library.map(|file| (file.path.as_str(), file.text.as_str())).collect();
    assert!(100 < files.len(), "the source is found");
    assert_tidy(check_circles(&files));
}

#[test]
fn circle_of_siblings_is_noticed() {
    let files = [
        ("src/a/mod.rs", "mod b;\nmod c;\npub use c::C;"),
        ("src/a/b.rs", "use super::c::C;"),
        ("src/a/c.rs", "use crate::{a::b::B, d};"),
        ("src/d.rs", "// use crate::a;\n#[cfg(test)]\nmod tests {\n    use crate::a::b::B;\n}"),
    ];
    let circle = "these modules use each other in a circle: {\"a::b\", \"a::c\"}";
    assert_eq!(check_circles(&files), [circle]);
}

#[test]
fn circle_of_parent_and_children_is_allowed() {
    let files = [
        ("src/a/mod.rs", "pub mod b;\nuse b::B;\nuse crate::e::E;"),
        ("src/a/b.rs", "use super::A;\nfn f() -> self::c::C {}"),
        ("src/a/b/c.rs", "use super::super::A;"),
        ("src/d.rs", "fn f() { crate::a::b::g() }"),
        ("src/e.rs", "#[cfg(doc)]\nuse crate::f::F;"),
        ("src/f.rs", "use crate::e::{self, E};"),
    ];
    assert_tidy(check_circles(&files));
    let beside = [&files[..3], &[("src/e.rs", "use crate::a::b::c::C;")]].concat();
    let circle = "these modules use each other in a circle: {\"a\", \"a::b\", \"a::b::c\", \"e\"}";
    assert_eq!(check_circles(&beside), [circle]);
}
