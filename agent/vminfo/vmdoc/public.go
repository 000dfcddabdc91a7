package vmdoc

// publicFields are the fields of a VM that each user of its compute node may see: its
// names, its state and its size. Each user can see as much in the list of processes. The
// rest is for root: metadata has passwords and keys, NICs and owners are the tenants'.
var publicFields = map[string]bool{
	"uuid": true, "zonename": true, "alias": true, "brand": true, "image_uuid": true,
	"state": true, "zone_state": true, "transition_to": true, "pid": true, "boot_timestamp": true, "create_timestamp": true,
	LastModified: true, "autoboot": true, "max_physical_memory": true, "quota": true, "cpu_cap": true, "ram": true, "vcpus": true,
}

// LimitedHeader is the header of a vminfod's answer that has public fields only.
const LimitedHeader = "Rutter-Limited"

// Public returns the object v with its public fields only. A public field with parts is
// left out, because a manifest may hide anything in it.
func (v Value) Public() Value {
	public := Value{kind: kindObject}
	for i, key := range v.keys {
		if publicFields[key] && !compound(v.items[i]) {
			public.keys = append(public.keys, key)
			public.items = append(public.items, v.items[i])
		}
	}
	return public
}

// PublicChanges returns the changes of public fields. A change from or to a value with
// parts is left out.
func PublicChanges(changes []Change) (public []Change) {
	for _, c := range changes {
		if len(c.Path) != 1 || !publicFields[c.Path[0].Name] || c.Old != nil && compound(*c.Old) || c.New != nil && compound(*c.New) {
			continue
		}
		public = append(public, c)
	}
	return public
}
