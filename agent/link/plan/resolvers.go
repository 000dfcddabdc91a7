package plan

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// ResolversHead is how a resolv.conf of a Rutter begins. Any other is replaced when the log
// has resolvers for the namespace, and is never removed.
//
// The line that follows says whose it is: "# " and a Mark, whose Object is the compute node.
// The folder of these files is the machine's, and agents of several clusters, or of several
// nodes in network namespaces of their own, may share it. Files of versions without that line
// are known by the namespace.
const ResolversHead = "# written by rutter; changes are lost\n"

const (
	resolversComment = "# "
	resolversObject  = "resolvers "
)

// resolvers plans resolv.conf of the VM namespaces.
func (p *planner) resolvers(have *Snapshot) {
	want := map[string]string{}
	held := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(have.UnreadResolvers)) {
		held[name] = true
		p.block(Object{Kind: ObjectResolvers, Name: name}, "link: resolv.conf cannot be read: %w", have.UnreadResolvers[name])
	}
	for i := range p.want.Fabrics {
		w, state := &p.want.Fabrics[i], p.fabric[i]
		if w.Namespace == "" {
			continue
		}
		if state.linkState == nil || w.Hold && state.have != nil {
			held[w.Namespace] = true
			continue
		}
		if len(w.Resolvers) > 0 && want[w.Namespace] == "" {
			want[w.Namespace] = p.numbers.resolvConf(w.Resolvers)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if have.Resolvers[name] != want[name] && !held[name] {
			p.files = append(p.files, Step{Op: OpWriteResolvers, Object: Object{Kind: ObjectResolvers, Name: name}, Namespace: name, Content: want[name]})
		}
	}
	if !p.prune {
		return
	}
	for _, files := range []map[string]string{have.Resolvers, have.Elsewhere} {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			_, read := have.Resolvers[name]
			if want[name] == "" && !held[name] && p.numbers.wrote(files[name], read) {
				p.files = append(p.files, Step{Op: OpRemoveResolvers, Object: Object{Kind: ObjectResolvers, Name: name}, Namespace: name})
			}
		}
	}
}

// resolvConf returns the content of a resolv.conf of ours.
func (n Numbers) resolvConf(resolvers []netip.Addr) string {
	var b strings.Builder
	b.WriteString(ResolversHead)
	if !n.node.IsZero() {
		b.WriteString(resolversComment + Mark{Cluster: n.Cluster(), Object: resolversObject + n.node.String()}.String() + "\n")
	}
	for _, r := range resolvers {
		b.WriteString("nameserver " + r.String() + "\n")
	}
	return b.String()
}

// wrote reports whether a resolv.conf is ours: of this node, for a cluster that it follows or
// followed. One without a mark is if adopt is set: it is of a namespace in which a link of
// ours is wanted, or was put.
func (n Numbers) wrote(text string, adopt bool) bool {
	rest, ok := strings.CutPrefix(text, ResolversHead)
	if !ok {
		return false
	}
	line, _, _ := strings.Cut(rest, "\n")
	comment, ok := strings.CutPrefix(line, resolversComment)
	mark, marked := ParseMark(comment)
	if !ok || !marked {
		return adopt
	}
	return n.isMine(mark.Cluster) && mark.Object == resolversObject+n.node.String()
}
