package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"rutter/agent"
	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vmsource"
	"rutter/agent/vmsource/libvirt"
	"rutter/agent/vmsource/registered"
	"rutter/api/client"
	"rutter/cmd/rutter/output"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/desired"
)

// registrations are the sources in which programs of the node register VMs. It is their
// registered.Node and their registered.Servers.
type registrations struct {
	cn      log.UUID
	served  []string // names of the sources in which programs may register VMs
	sources map[string]*registered.Source
	api     *client.Client
	vms     *vmSide
	agent   atomic.Pointer[agent.Agent] // nil until it is open
}

// newRegistrations makes the sources of the names. A source whose folder cannot be read is
// an unreadable one, and operators are told: the node's network does not depend on it.
func newRegistrations(opts *Options, n *vmSide, found *troubles) (*registrations, []vmsource.Source) {
	left := leftSources(opts.Folder, opts.VMs.Sources)
	for _, name := range left {
		opts.Logger.Warn("VMs are registered in a source that is switched off: they are kept, and no program can register VMs in it", "source", name)
		found.note("VMs are registered in the source " + name + ", which --vm-sources does not name: they are kept, with their NICs. Name it again, or remove each VM by rutter vm delete (rutter vm lookup names them)")
	}
	r := &registrations{cn: opts.CN, served: opts.VMs.Sources, sources: make(map[string]*registered.Source), api: opts.Servers.API, vms: n}
	var list []vmsource.Source
	for _, name := range slices.Concat(opts.VMs.Sources, left) {
		cfg := registered.Config{
			Name: name, Folder: workFolder(opts.Folder, filepath.Join("vmsource", name), found, opts.Logger),
			CN: opts.CN, Node: r, Servers: r, NewID: client.NewChangeID, Logger: opts.Logger,
		}
		if name == libvirt.SourceName {
			cfg.Servers = libvirt.Taking{Servers: r, CN: opts.CN, Node: r, NewID: client.NewChangeID, Placed: r.placed}
			cfg.Refers = "virsh does (or start the agent with --libvirt qemu:///system)"
		}
		source, err := registered.New(cfg)
		if err != nil {
			opts.Logger.Error("no program can register VMs in a source", "source", name, "error", err)
			found.note("no program can register VMs in the source " + name + ": " + err.Error())
			list = append(list, unreadable{name, err.Error()})
			continue
		}
		r.sources[name] = source
		if uri := opts.VMs.Libvirt; uri != "" && name == libvirt.SourceName {
			list = append(list, libvirt.New(libvirt.Config{Registry: source, Virsh: libvirt.Virsh{URI: uri}, Owner: opts.VMs.LibvirtOwner, Logger: opts.Logger}))
			continue
		}
		list = append(list, source)
	}
	return r, list
}

// names are those of the sources.
func (r *registrations) names() []string {
	if r == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(r.sources))
}

// leftSources are the sources that are not among names, and have files of VMs.
func leftSources(data string, names []string) (left []string) {
	files, _ := filepath.Glob(filepath.Join(data, "vmsource", "*", "*")) // the pattern is right
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		if registered.IsName(name) && !slices.Contains(names, name) && !slices.Contains(left, name) {
			left = append(left, name)
		}
	}
	return left
}

// unreadable is a source of which nothing can be read. It is never complete, so that its VMs
// are not taken for gone.
type unreadable struct{ name, why string }

// Name implements vmsource.Source.
func (u unreadable) Name() string { return u.name }

// Run implements vmsource.Source.
func (u unreadable) Run(ctx context.Context, sink vmsource.Sink) error {
	sink.Loaded()
	<-ctx.Done()
	return nil
}

// Scan implements vmsource.Source.
func (u unreadable) Scan() {}

// Status implements vmsource.Source.
func (u unreadable) Status() vmsource.Status {
	return vmsource.Status{Name: u.name, State: "cannot be read, until the agent starts again: " + u.why, Aside: []vmsource.Aside{}, Log: []vmsource.Refresh{}, Errors: []vmsource.Failure{}}
}

// handle serves the registrations. It is for the socket, which lets in root only.
func (r *registrations) handle(mux *http.ServeMux) {
	sources := make(map[string]*registered.Source)
	for _, name := range r.served {
		if source := r.sources[name]; source != nil {
			sources[name] = source
		}
	}
	mux.Handle("/vmsource/", registered.Handler(sources))
}

// advanced says that the node's part of the log changed.
func (r *registrations) advanced() {
	for _, source := range r.sources {
		source.Advanced()
	}
}

// connected says that there may be a server again.
func (r *registrations) connected() {
	for _, source := range r.sources {
		source.Wake()
	}
}

// View implements registered.Node.
func (r *registrations) View(fn func(state *projections.State)) {
	if a := r.agent.Load(); a != nil {
		a.View(fn)
		return
	}
	fn(projections.NewSmallState())
}

// Waits implements registered.Node.
func (r *registrations) Waits(vm log.UUID) (reached log.Seq, waits map[log.MAC]string, idle map[log.MAC]bool) {
	waits, idle = make(map[log.MAC]string), make(map[log.MAC]bool)
	a := r.agent.Load()
	if a == nil {
		return 0, waits, idle
	}
	reached, list := a.WaitsOf(vm)
	for _, w := range list {
		waits[w.NIC] = w.Object
		if w.Idle {
			idle[w.NIC] = true
		}
	}
	return reached, waits, idle
}

// Attaching implements registered.Node.
func (r *registrations) Attaching(map[log.MAC]vmdoc.Attach) {
	if t := r.vms.attaching.Load(); t != nil {
		t.tell()
	}
}

func attachOf(a vmdoc.Attach) desired.Attach {
	return desired.Attach{Tap: a.Kind == vmdoc.AttachTap, Name: a.Device, User: a.User}
}

// Holder implements registered.Node.
func (r *registrations) Holder(vm log.UUID) string { return r.vms.service.Store().Holder(vm) }

// ZoneHolder implements registered.Node.
func (r *registrations) ZoneHolder(zone string) (vm log.UUID, source string) {
	return r.vms.service.Store().ZoneHolder(zone)
}

// Ended implements registered.Node.
func (r *registrations) Ended(vm log.UUID, failure string) { r.vms.vmms.Ended(vm, failure) }

// Submit implements registered.Servers.
func (r *registrations) Submit(ctx context.Context, change *log.Change, wait time.Duration) (log.Result, error) {
	if wait <= 0 {
		return r.api.Submit(ctx, change)
	}
	result, err := r.api.SubmitAwaiting(ctx, change, wait)
	if pending, is := errors.AsType[*client.PendingError](err); is {
		return result, &registered.PendingError{Message: pending.Message}
	}
	return result, err
}

// Network implements registered.Servers.
func (r *registrations) Network(ctx context.Context, name string) (network log.UUID, err error) {
	list, err := r.api.List(ctx, "/networks", url.Values{"name": {name}})
	if err != nil {
		return network, err
	}
	if len(list) != 1 {
		return network, &log.Refusal{Code: log.CodeResourceNotFound, Message: fmt.Sprintf("%d networks that this node may see have the name %q", len(list), name)}
	}
	return log.ParseUUID(output.Text(list[0]["uuid"]))
}

// HasVM implements registered.Servers.
func (r *registrations) HasVM(ctx context.Context, id log.UUID) (bool, error) {
	vm := new(log.VM)
	is, err := r.has(ctx, "/vms/"+id.String(), vm)
	return is && vm.ServerUUID == r.cn, err
}

// NIC implements registered.Servers.
func (r *registrations) NIC(ctx context.Context, mac log.MAC) (*log.NIC, error) {
	nic := new(log.NIC)
	if is, err := r.has(ctx, "/nics/"+mac.String(), nic); err != nil || !is {
		return nil, err
	}
	return nic, nil
}

// has reads an object as the log has it now, if this node may see it.
func (r *registrations) has(ctx context.Context, path string, o log.Object) (bool, error) {
	text, err := r.api.Raw(ctx, http.MethodGet, path+"?consistent=true", nil)
	if refusal, is := errors.AsType[*log.Refusal](err); is && (refusal.Code == log.CodeResourceNotFound || refusal.Code == log.CodeNotAuthorized) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, json.Unmarshal(text, o)
}

// placed is libvirt.Taking's Placed.
func (r *registrations) placed(ctx context.Context, vm log.UUID) (bool, error) {
	ended := []string{"destroyed", "failed", "saga_unwound"}
	text, err := r.api.Raw(ctx, http.MethodGet, "/vmms?consistent=true&instance_id="+vm.String(), nil)
	if err != nil {
		return false, err
	}
	var list []log.VMM
	err = json.Unmarshal(text, &list)
	return slices.ContainsFunc(list, func(m log.VMM) bool {
		return m.SledID == r.cn && (m.Placed || m.State == statePlaced) && !slices.Contains(ended, m.State)
	}), err
}
