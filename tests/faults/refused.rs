//! A sync of the real file system is one of the system: refused by it, it fails.
//!
//! The other tests show which syncs are asked for, not that anything comes of them.

use std::io;
use std::mem::offset_of;
use std::path::Path;
use std::thread;

use pitstop::storage::errno_of;
use pitstop::{Local, Storage};

/// From now on the system answers to each sync of this thread that it failed.
#[expect(
    unsafe_code,
    reason = "the standard library has no system call filters"
)]
fn refuse_syncs() {
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equals = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    let statement = |code: u32, skip, k| libc::sock_filter {
        code: code as u16,
        jt: skip,
        jf: 0,
        k,
    };
    let mut statements = [
        statement(load, 0, offset_of!(libc::seccomp_data, nr) as u32),
        statement(equals, 2, libc::SYS_fsync as u32),
        statement(equals, 1, libc::SYS_fdatasync as u32),
        statement(answer, 0, libc::SECCOMP_RET_ALLOW),
        statement(answer, 0, libc::SECCOMP_RET_ERRNO | libc::EIO as u32),
    ];
    let program = libc::sock_fprog {
        len: statements.len() as u16,
        filter: statements.as_mut_ptr(),
    };
    let (yes, none): (libc::c_ulong, libc::c_ulong) = (1, 0);
    let filter = libc::c_ulong::from(libc::SECCOMP_MODE_FILTER);
    // SAFETY: both calls only read their arguments, and `program` and its statements live until they return.
    let (promised, set) = unsafe {
        (
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, yes, none, none, none),
            libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program),
        )
    };
    assert_eq!((promised, set), (0, 0), "the system has no call filters");
}

#[test]
fn a_sync_that_the_system_refuses_fails() {
    let (dir, disk) = (tempfile::tempdir().unwrap(), Local::new());
    let path = dir.path().join("a");
    let new = disk.create(&path, 5).unwrap();
    new.write_at(0, b"bytes").unwrap();
    let old = disk.open(&path).unwrap();
    let refused = |result: io::Result<()>, of: &Path| {
        assert_eq!(
            errno_of(&result.unwrap_err()).unwrap(),
            (libc::EIO, of.to_owned())
        );
    };
    thread::scope(|scope| {
        let syncs = || {
            new.sync().unwrap();
            refuse_syncs();
            refused(new.sync(), &path);
            refused(old.sync(), &path);
            refused(disk.sync_dir(dir.path()), dir.path());
        };
        scope.spawn(syncs);
    });
    // The other threads are as they were.
    old.sync().unwrap();
    disk.sync_dir(dir.path()).unwrap();
}
