//! Facts about the machine, and the resources that a process has used.

use std::fs;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::job::HostInfo;

/// Maximum time by which a sleep of a thread ends late. A punctual sender does not sleep for that long.
pub const SLEEP_SLACK: Duration = Duration::from_micros(100);

/// Returns the facts about this machine; unknown ones are empty.
pub fn host_info() -> HostInfo {
    let text = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let cpuinfo = text("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    HostInfo {
        kernel: text("/proc/sys/kernel/osrelease"),
        cpus: std::thread::available_parallelism().map_or(0, usize::from),
        cpu: model.map_or(String::new(), |(_, model)| model.to_owned()),
        rmem_max: text("/proc/sys/net/core/rmem_max").parse().ok(),
        boot: text("/proc/sys/kernel/random/boot_id"),
    }
}

/// Returns the processor time of all threads of this process, in nanoseconds.
pub fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("every Linux has this clock");
    let [secs, nanos] = [time.tv_sec(), time.tv_nsec()].map(|part| u64::try_from(part).unwrap_or(0));
    secs * 1_000_000_000 + nanos
}

/// Returns the processor time of all threads of another process, in nanoseconds, to a hundredth of a second; 0 if
/// there is no such process.
pub fn cpu_ns_of(process: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name of the program, in parentheses, may contain spaces. The twelfth and thirteenth field behind it are the
    // times in user and kernel mode. Their unit is a hundredth of a second for programs on every machine.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>() * 10_000_000
}

/// Returns the memory of a process that is in use and not swapped out, in bytes; 0 if there is no such process.
pub fn rss_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    line.and_then(|kilobytes| kilobytes.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Returns the processor time of this process, in nanoseconds, and its memory in bytes.
pub fn resource_usage() -> (u64, u64) {
    (cpu_ns(), rss_bytes(std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_usage_of_a_process_is_measured() {
        assert!(0 < cpu_ns());
        assert!(1 << 20 < rss_bytes(std::process::id()));
        assert_eq!((rss_bytes(u32::MAX), cpu_ns_of(u32::MAX)), (0, 0));
        while cpu_ns_of(std::process::id()) == 0 {
            std::hint::black_box((0..1_000_000_u64).sum::<u64>());
        }
        assert!(cpu_ns_of(std::process::id()) <= cpu_ns() + 20_000_000);
        let host = host_info();
        assert!(!host.kernel.is_empty() && 0 < host.cpus && !host.boot.is_empty(), "{host:?}");
    }
}
