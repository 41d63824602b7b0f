//! Simple load on a directory, to see what a mount can do: `load DIRECTORY [SECONDS]`.
//!
//! Prints operations (or MiB) per second with 1, 4 and 8 processes, and the CPU time of one operation in microseconds
//! (of clients and of the server, whose process number is in `LOAD_SERVER_PID`): on a busy machine only that means
//! something.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool for people")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const WORKS: [&str; 9] =
    ["stat", "fstat", "create", "read-1M", "write-1M", "read-4k", "write-4k", "ls-l", "open-read-4k"];
const MIB: usize = 1 << 20;
const PAGE: usize = 4096;
const FILE_MIB: usize = 64;
const SMALL: &str = "small";
const PROCESSES: [usize; 3] = [1, 4, 8];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--worker", work, directory, seconds] => worker(work, Path::new(directory), seconds),
        [directory] => table(Path::new(directory), "2", &WORKS),
        [directory, seconds] => table(Path::new(directory), seconds, &WORKS),
        [directory, seconds, ref works @ ..] => table(Path::new(directory), seconds, works),
        [] => Err("which directory?".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::from(2)
        }
    }
}

type AnyResult<T> = Result<T, Box<dyn std::error::Error>>;

fn table(directory: &Path, seconds: &str, works: &[&str]) -> AnyResult<()> {
    let head: String = PROCESSES.iter().map(|n| format!(" | {n:>9}/s {:>7} {:>7}", "client", "server")).collect();
    println!("{:>14}{head}", "processes");
    for work in works {
        let mut line = format!("{work:>14}");
        for processes in PROCESSES {
            let before = (children_us(), server_us());
            let (rate, count) = run(work, directory, seconds, processes)?;
            let (client, server) = ((children_us() - before.0) / count, (server_us() - before.1) / count);
            line.push_str(&format!(" | {rate:>11.0} {client:>7.1} {server:>7.1}"));
        }
        println!("{line}");
    }
    Ok(())
}

fn run(work: &str, directory: &Path, seconds: &str, processes: usize) -> AnyResult<(f64, f64)> {
    let mut children = Vec::new();
    for i in 0..processes {
        let own = directory.join(format!("load-{i}"));
        fs::create_dir_all(&own)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--worker", work]).arg(&own).arg(seconds).stdout(Stdio::piped());
        children.push(command.spawn()?);
    }
    let (mut rate, mut count) = (0.0, 0.0);
    for child in children {
        let output = child.wait_with_output()?;
        let text = String::from_utf8(output.stdout)?;
        let (own_rate, own_count) = text.trim().split_once(' ').ok_or("a worker failed")?;
        rate += own_rate.parse::<f64>()?;
        count += own_count.parse::<f64>()?;
    }
    for i in 0..processes {
        fs::remove_dir_all(directory.join(format!("load-{i}")))?;
    }
    Ok((rate, count))
}

/// CPU time of all processes that have ended.
fn children_us() -> f64 {
    // SAFETY: a zeroed record is valid, and the call fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    let us = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
    us(usage.ru_utime) + us(usage.ru_stime)
}

/// CPU time of the server so far, by the scheduler's own count.
fn server_us() -> f64 {
    let Ok(pid) = std::env::var("LOAD_SERVER_PID") else { return f64::NAN };
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return f64::NAN };
    let ns = |entry: std::io::Result<fs::DirEntry>| -> Option<f64> {
        let text = fs::read_to_string(entry.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    threads.filter_map(ns).sum::<f64>() / 1000.0
}

/// Prints what one process did per second.
fn worker(work: &str, directory: &Path, seconds: &str) -> AnyResult<()> {
    let duration = Duration::from_secs_f64(seconds.parse()?);
    // Relative from here on: each name on the way would be one more look-up.
    std::env::set_current_dir(directory)?;
    let directory = Path::new(".");
    let file_path = Path::new("file");
    // Page-aligned, as programs for large transfers do: otherwise each MiB would touch one page more than a request has.
    let mut memory = vec![7u8; MIB + PAGE];
    let skip = memory.as_ptr().align_offset(PAGE);
    let buffer = &mut memory[skip..skip + MIB];
    let file = File::options().read(true).write(true).create(true).truncate(true).open(file_path)?;
    if work.starts_with("read") || work.starts_with("write") {
        for i in 0..FILE_MIB {
            file.write_all_at(buffer, (i * MIB) as u64)?;
        }
    }
    if work == "ls-l" {
        for i in 0..1000 {
            File::create(format!("entry-{i}"))?;
        }
    }
    fs::write(SMALL, &buffer[..4096])?;
    let mut count = 0u64;
    let begin = Instant::now();
    while begin.elapsed() < duration {
        count += one(work, directory, file_path, &file, buffer, count)?;
    }
    println!("{} {count}", count as f64 / begin.elapsed().as_secs_f64());
    Ok(())
}

fn one(work: &str, directory: &Path, path: &Path, file: &File, buffer: &mut [u8], step: u64) -> AnyResult<u64> {
    let large_at = (step as usize % FILE_MIB * MIB) as u64;
    let small_at = step.wrapping_mul(7919) % (FILE_MIB as u64 * 256) * 4096;
    match work {
        "stat" => _ = fs::metadata(path)?,
        "fstat" => _ = file.metadata()?,
        "create" => {
            let path = format!("new-{step}");
            drop(File::create(&path)?);
            fs::remove_file(&path)?;
        }
        "read-1M" => file.read_exact_at(buffer, large_at)?,
        "write-1M" => file.write_all_at(buffer, large_at)?,
        "read-4k" => file.read_exact_at(&mut buffer[..4096], small_at)?,
        "write-4k" => file.write_all_at(&buffer[..4096], small_at)?,
        "ls-l" => return Ok(fs::read_dir(directory)?.filter_map(|e| e.ok()?.metadata().ok()).count() as u64),
        "open-read-4k" => drop(fs::read(SMALL)?),
        other => return Err(format!("unknown work {other}").into()),
    };
    Ok(1)
}
