package raftstore

import (
	"context"
	"path/filepath"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// faultDir is an open folder whose sync fails when it is told to, and makes the
// names in it durable.
type faultDir struct {
	fs.FileHandle
	path string
	f    *faults
}

func (n *faultNode) OpendirHandle(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h, ff, errno := n.LoopbackNode.OpendirHandle(ctx, flags)
	if errno != 0 {
		return nil, ff, errno
	}
	return &faultDir{h, n.path(""), n.f}, ff, 0
}

func (d *faultDir) Fsyncdir(ctx context.Context, flags uint32) syscall.Errno {
	if errno := d.f.step("syncdir"); errno != 0 {
		return errno
	}
	errno := d.FileHandle.(fs.FileFsyncdirer).Fsyncdir(ctx, flags)
	if errno == 0 {
		d.f.mu.Lock()
		delete(d.f.renamed, filepath.Clean(d.path))
		d.f.mu.Unlock()
	}
	return errno
}

func (d *faultDir) Readdirent(ctx context.Context) (*fuse.DirEntry, syscall.Errno) {
	return d.FileHandle.(fs.FileReaddirenter).Readdirent(ctx)
}

func (d *faultDir) Seekdir(ctx context.Context, off uint64) syscall.Errno {
	return d.FileHandle.(fs.FileSeekdirer).Seekdir(ctx, off)
}

func (d *faultDir) Releasedir(ctx context.Context, flags uint32) {
	d.FileHandle.(fs.FileReleasedirer).Releasedir(ctx, flags)
}

// noteRename counts a rename that the folder may forget until it is synced.
func (f *faults) noteRename(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.renamed == nil {
		f.renamed = make(map[string]int)
	}
	f.renamed[filepath.Dir(path)]++
}

// unsynced counts the renames that folders may forget.
func (f *faults) unsynced() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, names := range f.renamed {
		n += names
	}
	return n
}
