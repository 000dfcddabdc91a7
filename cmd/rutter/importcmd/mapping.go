package importcmd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"rutter/log"
	"rutter/projections"
)

// Portolan's two tables have the answers of SVP (spec/svp.md section 5). Rutter derives
// these answers from NICs and networks, so the rows are not imported. Each row is
// compared with Rutter's answer after the import.

// difference is a row of portolan's that differs from Rutter's answer.
type difference struct {
	Table    string `json:"table"`
	Key      string `json:"key"`
	Portolan string `json:"portolan"`
	Rutter   string `json:"rutter"`
	Cause    string `json:"cause"`
}

// rowReader reads the columns of a row, and collects their faults.
type rowReader struct {
	theirs map[string]json.RawMessage
	errs   []error
}

func column[T any](r *rowReader, name string, parse func(string) (T, error)) (v T) {
	raw, has := r.theirs[name]
	if !has || isNone(raw) {
		r.errs = append(r.errs, fmt.Errorf("%s is missing", name))
		return v
	}
	v, err := parse(bare(raw))
	if err != nil {
		r.errs = append(r.errs, fmt.Errorf("%s: %w", name, err))
	}
	return v
}

func parseVNet(s string) (uint32, error) {
	v, err := number(json.RawMessage(s))
	n, _ := v.(uint64)
	if err == nil && (n == 0 || n > log.MaxVNet) {
		err = fmt.Errorf("%d is no vnet from 1 to %d", n, log.MaxVNet)
	}
	return uint32(n), err
}

func parsePort(s string) (uint32, error) {
	v, err := number(json.RawMessage(s))
	n, _ := v.(uint64)
	if err == nil && n > 65535 {
		err = fmt.Errorf("%d is no port", n)
	}
	return uint32(n), err
}

func parseMACNumber(s string) (log.MAC, error) {
	t, err := macOfNumber(s)
	if err != nil {
		return log.ParseMAC(s)
	}
	return log.ParseMAC(t)
}

// done records a row that cannot be read.
func (r *rowReader) done(in *installation, table, from string) bool {
	if err := errors.Join(r.errs...); err != nil {
		in.problems = append(in.problems, problem{
			Kind: table, From: from, Message: strings.ReplaceAll(err.Error(), "\n", "; "), Left: true,
			Remedy: "the row is not compared: mend it, or leave it out",
		})
		return false
	}
	return true
}

func (in *installation) takeOverlay(theirs map[string]json.RawMessage, from string) {
	r := &rowReader{theirs: theirs}
	o := overlay{
		vnet: column(r, "vnet_id", parseVNet), ip: column(r, "ip", parseAddress), mac: column(r, "mac", parseMACNumber),
		deleted: bare(theirs["deleted"]) == "true",
	}
	if !o.deleted {
		o.cn = column(r, "cn_uuid", log.ParseUUID)
	}
	if r.done(in, overlayName, from) {
		in.overlays = append(in.overlays, o)
	}
}

func (in *installation) takeUnderlay(theirs map[string]json.RawMessage, from string) {
	r := &rowReader{theirs: theirs}
	u := underlay{cn: column(r, "cn_uuid", log.ParseUUID), ip: column(r, "ip", parseAddress), port: column(r, "port", parsePort)}
	if r.done(in, underlayName, from) {
		in.under = append(in.under, u)
	}
}

// takeFabric records the vnet of an owner.
func (in *installation) takeFabric(theirs map[string]json.RawMessage, from string) {
	r := &rowReader{theirs: theirs}
	owner, vnet := column(r, "owner_uuid", log.ParseUUID), column(r, "vnet_id", parseVNet)
	if r.done(in, fabricsName, from) {
		in.vnets[owner] = vnet
	}
}

// compared is the comparison of portolan's rows with Rutter's answers.
type compared struct {
	Rows       int `json:"rows"`
	Same       int `json:"same"`       // live rows that equal Rutter's answers
	Tombstones int `json:"tombstones"` // of deleted mappings, which portolan never removes
	// Missing counts Rutter's answers without a row in portolan.
	Missing int `json:"missing"`
}

// compare looks each row up as SVP would.
func (in *installation) compare(state *projections.State) (compared, []difference) {
	var c compared
	var all []difference
	for _, u := range in.under {
		c.Rows++
		at, ok := state.UnderlayOf(u.cn)
		if ok && at.Addr == u.ip && uint32(at.Port) == u.port {
			c.Same++
			continue
		}
		d := difference{Table: underlayName, Key: u.cn.String(), Portolan: fmt.Sprintf("%s port %d", u.ip, u.port), Rutter: "none"}
		d.Cause = "no NIC of this server is marked underlay and has an address"
		if ok {
			d.Rutter, d.Cause = fmt.Sprintf("%s port %d", at.Addr, at.Port), "the server's underlay NIC has another address"
		}
		all = append(all, d)
	}
	live := make(map[string]bool)
	for _, o := range in.overlays {
		c.Rows++
		if o.deleted {
			c.Tombstones++
		} else {
			live[fmt.Sprint(o.vnet, o.mac)] = true
		}
		if d, differs := o.compare(state); differs {
			all = append(all, d)
		} else if !o.deleted {
			c.Same++
		}
	}
	if len(in.overlays) > 0 {
		c.Missing = unlisted(state, live)
	}
	return c, all
}

func (o overlay) compare(state *projections.State) (difference, bool) {
	mac, at, ok := state.VL3(o.vnet, o.ip)
	if o.deleted && !ok || !o.deleted && ok && mac == o.mac && at.CN == o.cn {
		return difference{}, false
	}
	d := difference{
		Table: overlayName, Key: fmt.Sprintf("%s,%d", o.ip, o.vnet), Portolan: fmt.Sprintf("%s on %s", o.mac, o.cn), Rutter: "none",
	}
	switch {
	case o.deleted:
		d.Portolan, d.Rutter, d.Cause = "deleted", fmt.Sprintf("%s on %s", mac, at.CN), "a NIC has the address, and portolan did not hear of it"
	case ok && mac != o.mac:
		d.Rutter, d.Cause = fmt.Sprintf("%s on %s", mac, at.CN), "another NIC has the address: the row is older than it"
	case ok:
		d.Rutter, d.Cause = fmt.Sprintf("%s on %s", mac, at.CN), "the NIC is on another server: the row is older than it"
	default:
		d.Cause = o.absence(state)
	}
	return d, true
}

// absence says why there is no answer.
func (o overlay) absence(state *projections.State) string {
	r, ok := state.Get(log.KindNIC, o.mac.String())
	if !ok {
		return "there is no such NIC"
	}
	nic := r.Object.(*log.NIC)
	n := state.Network(nic.NetworkUUID)
	switch {
	case n == nil || !n.Fabric || n.VNetID != o.vnet:
		return "the NIC is not on this vnet"
	case nic.IP != o.ip:
		return fmt.Sprintf("the NIC has the address %s", nic.IP)
	case nic.CNUUID.IsZero():
		return "the NIC has no cn_uuid"
	}
	return fmt.Sprintf("the server %s has no underlay address", nic.CNUUID)
}

// unlisted counts the NICs on fabrics that portolan has no row of.
func unlisted(state *projections.State, live map[string]bool) (n int) {
	for r := range state.List(log.KindNIC) {
		nic := r.Object.(*log.NIC)
		net := state.Network(nic.NetworkUUID)
		if net == nil || !net.Fabric || nic.BelongsToType != "zone" || live[fmt.Sprint(net.VNetID, nic.MAC)] {
			continue
		}
		n++
	}
	return n
}
