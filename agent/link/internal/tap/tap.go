// Package tap makes and changes persistent taps by the ioctls of /dev/net/tun: what
// rtnetlink cannot do of them (linux/if_tun.h, Documentation/networking/tuntap.rst).
//
// Concurrency: each function has a thread of its own, which enters the namespace and ends
// with the call. A New belongs to one goroutine at a time.
package tap

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

const (
	device = "/dev/net/tun"
	// exclusive is IFF_TUN_EXCL: without it the kernel would attach to another program's
	// tap of that name.
	exclusive = 0x8000
)

// flags are those of a tap for QEMU: no packet information before a frame, and a header for
// offloads. What opens the tap says anew which of the two it has. Not IFF_MULTI_QUEUE: the
// kernel refuses to open a tap of several queues for one, as QEMU and libvirt do unless they
// are told otherwise (tun_set_iff, linux drivers/net/tun.c).
const flags = unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR

var (
	// ErrTaken: a link of that name is there.
	ErrTaken = errors.New("a link of that name is there, and not this NIC's: rename or remove it, or choose another name")
	// ErrOpen: a program has the tap open, so that nothing of it can be changed this way.
	ErrOpen = errors.New("a program has the tap open: it is changed when that ends")
)

// New is a tap that ends with Close unless Keep is called.
type New struct{ fd int }

// Make makes a tap of that name and ifindex in the namespace of the descriptor netns, which
// only user, and programs with CAP_NET_ADMIN, may open. It is down, and not persistent yet:
// if this process ends before Keep, the kernel removes it. Errors: ErrTaken, and that the
// kernel has no taps (module tun), or allows none.
func Make(netns int, name string, index int32, user uint32) (*New, error) {
	var made *New
	err := within(netns, func() (err error) {
		fd, err := open()
		if err != nil {
			return err
		}
		if err := create(fd, name, index, user); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		made = &New{fd}
		return nil
	})
	return made, err
}

func create(fd int, name string, index int32, user uint32) error {
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETIFINDEX, int(index)); err != nil {
		return fmt.Errorf("ifindex %d of a new tap: %w", index, err)
	}
	err := attach(fd, name, flags|exclusive)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%s: %w", name, ErrTaken)
	}
	if err != nil {
		return fmt.Errorf("make tap %s: %w", name, err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOWNER, int(user)); err != nil {
		return fmt.Errorf("user %d of tap %s: %w", user, name, err)
	}
	return nil
}

// Keep makes the tap persistent.
func (n *New) Keep() error {
	if err := unix.IoctlSetInt(n.fd, unix.TUNSETPERSIST, 1); err != nil {
		return fmt.Errorf("make the tap persistent: %w", err)
	}
	return nil
}

// Close frees the file. A tap that was not kept ends.
func (n *New) Close() error { return unix.Close(n.fd) }

// SetUser sets who may open the tap that has a name and an ifindex. Errors: ErrOpen, and
// that the name is another link's by now.
func SetUser(netns int, name string, index int32, user uint32) error {
	return within(netns, func() (err error) {
		fd, err := open()
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, unix.Close(fd)) }()
		if at, err := indexOf(name); err != nil || at != index {
			return fmt.Errorf("%s: %w", name, ErrTaken)
		}
		err = attach(fd, name, flags)
		if errors.Is(err, unix.EBUSY) {
			return ErrOpen
		}
		if err != nil {
			return fmt.Errorf("open tap %s: %w", name, err)
		}
		if at, err := indexOf(name); err != nil || at != index { // renamed just now: close without a change
			return fmt.Errorf("%s: %w", name, ErrTaken)
		}
		if err := unix.IoctlSetInt(fd, unix.TUNSETOWNER, int(user)); err != nil {
			return fmt.Errorf("user %d of tap %s: %w", user, name, err)
		}
		return nil
	})
}

func open() (int, error) {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) {
		return -1, fmt.Errorf("open %s: %w: the kernel has no taps: load module tun, or build it with CONFIG_TUN", device, err)
	}
	if err != nil {
		return -1, fmt.Errorf("open %s: %w", device, err)
	}
	return fd, nil
}

// attach joins a file with the tap of a name, which it makes if there is none.
func attach(fd int, name string, flags uint16) error {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	ifr.SetUint16(flags)
	return unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
}

// indexOf returns the ifindex of a link of the thread's namespace.
func indexOf(name string) (int32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return 0, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr); err != nil {
		return 0, err
	}
	return int32(ifr.Uint32()), nil
}

// within calls f on a thread that is in a namespace.
func within(netns int, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := unix.Setns(netns, unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("enter the node's namespace: %w", err)
			return
		}
		result <- f()
	}()
	return <-result
}
