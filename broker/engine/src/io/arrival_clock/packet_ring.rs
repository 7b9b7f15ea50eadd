//! A ring of packets shared with the kernel (AF_PACKET, TPACKET_V2): the headers of what comes in for some TCP ports,
//! each with its receive stamp.
//!
//! Version 2 shows a packet at once. Version 3 would keep it until a block is full or 1 ms is over.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{io, mem, slice};

use crate::arrival::packet_filter::{Instruction, filter};
use crate::time::Nanos;

const FRAME: usize = 256;
const BLOCK: usize = 64 << 10;

/// Packets that fit: 0.8 s at 40,000 a second, in 8 MiB. Beyond that the kernel drops and counts them here; their
/// connections still get them.
const FRAMES: usize = 32_768;

pub struct Ring {
    fd: OwnedFd,
    frames: NonNull<u8>,
    next: usize,
    lost: u64,
}

/// An incoming packet from its IP header on, and its stamp (CLOCK_REALTIME).
pub struct Packet<'a> {
    pub bytes: &'a [u8],
    pub stamp: Nanos,
    /// The kernel or the network card verified its checksum, or it has none, for it never left this machine.
    pub is_checked: bool,
}

/// Of a packet whose checksum needs no look.
const CHECKED: u32 = libc::TP_STATUS_CSUM_VALID | libc::TP_STATUS_CSUMNOTREADY;

impl Ring {
    /// Open a ring for all interfaces of this network namespace. `PermissionDenied` without CAP_NET_RAW.
    pub fn open(ports: &[u16]) -> io::Result<Self> {
        // SAFETY: no pointers; the result is checked before it is owned.
        let fd = check(unsafe {
            libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0)
        })?;
        // SAFETY: `fd` was just opened and nobody else owns it.
        let owner = unsafe { OwnedFd::from_raw_fd(fd) };
        attach(fd, &filter(ports))?;
        // On loopback each packet goes out and comes in: the second one is the arrival.
        set_option(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1)?;
        set_option(fd, libc::SOL_PACKET, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as libc::c_int))?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: (FRAMES * FRAME / BLOCK) as u32,
            tp_frame_size: FRAME as u32,
            tp_frame_nr: FRAMES as u32,
        };
        set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let frames = map(fd)?;
        let ring = Self { fd: owner, frames, next: 0, lost: 0 };
        // Only now: a packet from before the filter would be of any port.
        bind(fd)?;
        Ok(ring)
    }

    /// Show every packet that is there, oldest first.
    pub fn drain(&mut self, mut show: impl FnMut(Packet<'_>)) {
        for _ in 0..FRAMES {
            // SAFETY: `next` is below FRAMES, so the frame lies in the mapping, which is as old as `self`.
            let frame = unsafe { self.frames.add(self.next * FRAME) };
            // SAFETY: a frame begins with its aligned status word. The kernel changes it at any time: hence an atomic.
            let status = unsafe { AtomicU32::from_ptr(frame.cast().as_ptr()) };
            let seen = status.load(Ordering::Acquire);
            if seen & libc::TP_STATUS_USER == 0 {
                return;
            }
            if let Some(packet) = packet(frame) {
                show(packet);
            }
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % FRAMES;
            if seen & libc::TP_STATUS_LOSING != 0 {
                self.count_lost();
            }
        }
    }

    /// Ask the kernel how many packets did not fit. The first packet that fits again tells to ask; a caller that misses
    /// one may ask before.
    pub fn count_lost(&mut self) {
        self.lost += lost_since(self.fd.as_raw_fd());
    }

    /// Packets that did not fit, as of the last count.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length and nobody refers to it any more.
        unsafe { libc::munmap(self.frames.as_ptr().cast(), FRAMES * FRAME) };
    }
}

/// The packet in a frame that is ours; `None` if its numbers make no sense.
fn packet<'a>(frame: NonNull<u8>) -> Option<Packet<'a>> {
    // SAFETY: the frame is FRAME bytes long, aligned to 16, and begins with this header. The kernel leaves it alone
    // until the status is given back.
    let header: libc::tpacket2_hdr = unsafe { ptr::read(frame.cast().as_ptr()) };
    let (start, len) = (usize::from(header.tp_net), header.tp_snaplen as usize);
    if start < mem::size_of::<libc::tpacket2_hdr>() || start + len > FRAME {
        return None;
    }
    // SAFETY: within the frame, as was just checked, and ours until the caller gives the status back, after its last
    // use.
    let bytes = unsafe { slice::from_raw_parts(frame.add(start).as_ptr(), len) };
    let stamp = Nanos::from(header.tp_sec) * 1_000_000_000 + Nanos::from(header.tp_nsec);
    Some(Packet { bytes, stamp, is_checked: header.tp_status & CHECKED != 0 })
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn set_option<T>(fd: RawFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: `value` lives through the call and its size is given.
    check(unsafe {
        libc::setsockopt(fd, level, name, ptr::from_ref(value).cast(), mem::size_of::<T>() as libc::socklen_t)
    })?;
    Ok(())
}

fn attach(fd: RawFd, instructions: &[Instruction]) -> io::Result<()> {
    let one = |i: &Instruction| libc::sock_filter { code: i.code as u16, jt: i.if_true, jf: i.if_false, k: i.operand };
    let mut program: Vec<libc::sock_filter> = instructions.iter().map(one).collect();
    // The kernel copies the program during the call.
    set_option(
        fd,
        libc::SOL_SOCKET,
        libc::SO_ATTACH_FILTER,
        &libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() },
    )
}

fn map(fd: RawFd) -> io::Result<NonNull<u8>> {
    // SAFETY: a new shared mapping of the ring of `fd`, of the ring's size; the result is checked.
    let at = unsafe {
        libc::mmap(ptr::null_mut(), FRAMES * FRAME, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0)
    };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| io::Error::other("a ring at address zero"))
}

/// Let packets come in: of every protocol and interface, as far as the filter lets them.
fn bind(fd: RawFd) -> io::Result<()> {
    // SAFETY: all zeros is a valid sockaddr_ll.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: `address` is a valid sockaddr_ll of the size given.
    check(unsafe { libc::bind(fd, (&raw const address).cast(), mem::size_of_val(&address) as libc::socklen_t) })?;
    Ok(())
}

/// Packets lost since the last call.
fn lost_since(fd: RawFd) -> u64 {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = mem::size_of_val(&stats) as libc::socklen_t;
    // SAFETY: `stats` has room for `len` bytes; a failure leaves the zeros.
    unsafe { libc::getsockopt(fd, libc::SOL_PACKET, libc::PACKET_STATISTICS, (&raw mut stats).cast(), &raw mut len) };
    u64::from(stats.tp_drops)
}
