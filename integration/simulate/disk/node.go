package disk

import (
	"context"
	"os"
	"path/filepath"
	"syscall"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// node, file and folder are those of the loopback with faults before them.
type node struct {
	fusefs.LoopbackNode
	f *faults
}

type file struct {
	fusefs.FileHandle
	file  *fusefs.LoopbackFile
	inode *inode
	f     *faults
}

func (n *node) path(name string) string {
	return filepath.Join(n.RootData.Path, n.Path(n.Root()), name)
}

// WrapChild makes every node below a faulty one faulty.
func (n *node) WrapChild(_ context.Context, child fusefs.InodeEmbedder) fusefs.InodeEmbedder {
	if data, ok := child.(*fusefs.LoopbackNode); ok {
		return &node{LoopbackNode: fusefs.LoopbackNode{RootData: data.RootData}, f: n.f}
	}
	return child
}

func (n *node) Open(ctx context.Context, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	h, ff, errno := n.LoopbackNode.Open(ctx, flags)
	if errno != 0 {
		return nil, ff, errno
	}
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	if n.f.lossy {
		ff |= fuse.FOPEN_KEEP_CACHE
	}
	h, errno = n.wrap(h, n.path(""))
	return h, ff, errno
}

func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fusefs.Inode, fusefs.FileHandle, uint32, syscall.Errno) {
	if errno := n.f.step("create"); errno != 0 {
		return nil, nil, 0, errno
	}
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	path := n.path(name)
	_, missing := os.Lstat(path)
	made, h, ff, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	if errno != 0 {
		return nil, nil, 0, errno
	}
	if missing != nil {
		rel := n.f.rel(path)
		n.f.note(&change{dirs: []string{filepath.Dir(rel)}, ino: out.Ino, undo: func(s side) error { return os.Remove(s.path(rel)) }})
	}
	h, errno = n.wrap(h, path)
	return made, h, ff, errno
}

func (n *node) wrap(h fusefs.FileHandle, path string) (fusefs.FileHandle, syscall.Errno) {
	inner, ok := h.(*fusefs.LoopbackFile)
	if !ok {
		return h, 0
	}
	i := n.f.hold(path)
	if i == nil {
		_ = inner.Release(context.Background())
		return nil, syscall.EIO
	}
	return &file{file: inner, inode: i, f: n.f}, 0
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fusefs.Inode, syscall.Errno) {
	if errno := n.f.step("mkdir"); errno != 0 {
		return nil, errno
	}
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	made, errno := n.LoopbackNode.Mkdir(ctx, name, mode, out)
	if rel := n.f.rel(n.path(name)); errno == 0 {
		n.f.note(&change{dirs: []string{filepath.Dir(rel)}, undo: func(s side) error { return os.Remove(s.path(rel)) }})
	}
	return made, errno
}

func (n *node) Rmdir(ctx context.Context, name string) syscall.Errno {
	if errno := n.f.step("remove"); errno != 0 {
		return errno
	}
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	errno := n.LoopbackNode.Rmdir(ctx, name)
	if rel := n.f.rel(n.path(name)); errno == 0 {
		n.f.note(&change{dirs: []string{filepath.Dir(rel)}, undo: func(s side) error { return os.Mkdir(s.path(rel), 0o700) }})
	}
	return errno
}

func (n *node) Unlink(ctx context.Context, name string) syscall.Errno {
	if errno := n.f.step("remove"); errno != 0 {
		return errno
	}
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	path := n.path(name)
	kept := n.f.keep(path)
	errno := n.LoopbackNode.Unlink(ctx, name)
	if errno == 0 {
		rel := n.f.rel(path)
		n.f.note(&change{dirs: []string{filepath.Dir(rel)}, kept: kept, undo: func(s side) error { return s.restore(kept, rel) }})
	}
	return errno
}

func (n *node) Rename(ctx context.Context, name string, to fusefs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	if errno := n.f.step("rename"); errno != 0 {
		return errno
	}
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	target, ok := to.(*node)
	if !ok {
		return syscall.EXDEV
	}
	from, into := n.f.rel(n.path(name)), n.f.rel(target.path(newName))
	kept := n.f.keep(target.path(newName))
	errno := n.LoopbackNode.Rename(ctx, name, to, newName, flags)
	if errno == 0 {
		n.f.renamed[filepath.Dir(into)]++
		n.f.note(&change{dirs: []string{filepath.Dir(from), filepath.Dir(into)}, kept: kept, undo: func(s side) error {
			if err := os.Rename(s.path(into), s.path(from)); err != nil {
				return err
			}
			return s.restore(kept, into)
		}})
	}
	return errno
}

// Setattr counts what changes a size through a name; through a handle it is file.Setattr.
func (n *node) Setattr(ctx context.Context, h fusefs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if _, sized := in.GetSize(); h != nil || !sized {
		return n.LoopbackNode.Setattr(ctx, h, in, out)
	}
	inner, _, errno := n.LoopbackNode.Open(ctx, syscall.O_RDWR)
	if errno != 0 {
		return errno
	}
	n.f.mu.Lock()
	wrapped, errno := n.wrap(inner, n.path(""))
	n.f.mu.Unlock()
	opened, ok := wrapped.(*file)
	if !ok {
		return errno
	}
	defer opened.Release(ctx)
	return opened.Setattr(ctx, in, out)
}

// Statfs shows the room that there is.
func (n *node) Statfs(ctx context.Context, out *fuse.StatfsOut) syscall.Errno {
	errno := n.LoopbackNode.Statfs(ctx, out)
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	if n.f.room >= 0 && errno == 0 && out.Bsize > 0 {
		out.Bfree = uint64(n.f.room) / uint64(out.Bsize)
		out.Bavail = out.Bfree
	}
	return errno
}

func (h *file) Read(ctx context.Context, b []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	return h.file.Read(ctx, b, at)
}

func (h *file) Write(ctx context.Context, b []byte, at int64) (uint32, syscall.Errno) {
	if errno := h.f.step("write"); errno != 0 {
		return 0, errno
	}
	h.f.space.Lock()
	defer h.f.space.Unlock()
	was := h.inode.before(at, len(b))
	n, errno := h.file.Write(ctx, b, at)
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	if errno == 0 && h.f.room >= 0 && !h.f.takes(h.inode.blocks()-was.blocks) {
		_ = was.putBack(h.inode.file, 0, len(was.old))
		if was.size < at+int64(len(b)) {
			_ = h.inode.file.Truncate(was.size)
		}
		return 0, syscall.ENOSPC
	}
	h.inode.undo = append(h.inode.undo, was)
	return n, errno
}

func (h *file) Fsync(ctx context.Context, flags uint32) syscall.Errno {
	if errno := h.f.step("sync"); errno != 0 {
		h.f.mu.Lock()
		defer h.f.mu.Unlock()
		if h.f.lossy {
			h.inode.lose()
		}
		return errno
	}
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	h.inode.undo = nil
	h.f.commit(func(c *change) bool { return c.ino == h.inode.ino })
	return 0 // what is below is memory
}

func (h *file) Setattr(ctx context.Context, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if errno := h.f.step("size"); errno != 0 {
		return errno
	}
	h.f.space.Lock()
	defer h.f.space.Unlock()
	h.f.mu.Lock()
	defer h.f.mu.Unlock()
	size, sized := in.GetSize()
	before := h.inode.size()
	var cut written
	if sized && int64(size) < before {
		cut = h.inode.before(int64(size), int(before-int64(size)))
	}
	blocks := h.inode.blocks()
	errno := h.file.Setattr(ctx, in, out)
	if sized && errno == 0 {
		h.f.takes(h.inode.blocks() - blocks) // no more than before
		i := h.inode
		i.holders++ // until the change is kept or taken back
		h.f.note(&change{ino: i.ino, held: i, undo: func(s side) error {
			file := s.file(i)
			if file == nil {
				return nil
			}
			if err := file.Truncate(before); err != nil {
				return err
			}
			return cut.putBack(file, 0, len(cut.old))
		}})
	}
	return errno
}

func (h *file) Getattr(ctx context.Context, out *fuse.AttrOut) syscall.Errno {
	return h.file.Getattr(ctx, out)
}

func (h *file) Flush(ctx context.Context) syscall.Errno { return h.file.Flush(ctx) }

func (h *file) Release(ctx context.Context) syscall.Errno {
	h.f.mu.Lock()
	h.f.release(h.inode)
	h.f.mu.Unlock()
	return h.file.Release(ctx)
}

// folder is an open folder whose sync fails when it is told to, and makes the names in it
// durable.
type folder struct {
	fusefs.FileHandle
	path string
	f    *faults
}

func (n *node) OpendirHandle(ctx context.Context, flags uint32) (fusefs.FileHandle, uint32, syscall.Errno) {
	h, ff, errno := n.LoopbackNode.OpendirHandle(ctx, flags)
	if errno != 0 {
		return nil, ff, errno
	}
	dir := n.f.rel(n.path(""))
	if dir == "" {
		dir = "/"
	}
	return &folder{h, dir, n.f}, ff, 0
}

func (d *folder) Fsyncdir(_ context.Context, _ uint32) syscall.Errno {
	if errno := d.f.step("syncdir"); errno != 0 {
		return errno
	}
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	delete(d.f.renamed, d.path)
	d.f.commit(func(c *change) bool { return c.in(d.path) })
	return 0
}

func (d *folder) Readdirent(ctx context.Context) (*fuse.DirEntry, syscall.Errno) {
	return d.FileHandle.(fusefs.FileReaddirenter).Readdirent(ctx)
}

func (d *folder) Seekdir(ctx context.Context, off uint64) syscall.Errno {
	return d.FileHandle.(fusefs.FileSeekdirer).Seekdir(ctx, off)
}

func (d *folder) Releasedir(ctx context.Context, flags uint32) {
	d.FileHandle.(fusefs.FileReleasedirer).Releasedir(ctx, flags)
}
