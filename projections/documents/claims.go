package documents

import (
	"fmt"
	"strings"

	"rutter/log"
)

// claimOf is a value of an object that no other object of its kind may have at the same
// time, with the field that has it; "" if there is none that an update can change.
func claimOf(o log.Object) (field, claim string) {
	switch o := o.(type) {
	case *log.Network:
		if o.Fabric {
			return "name", fmt.Sprint(o.OwnerUUIDs, o.Name)
		}
		return "name", o.Name
	case *log.NIC:
		if o.IP.IsValid() {
			return "ip", o.NetworkUUID.String() + " " + o.IP.String()
		}
	}
	return "", ""
}

// freeing sorts updates of one kind so that a value is given up before another object takes
// it. What it returns in exchanged cannot be sorted: each takes a value that another one has.
func freeing(steps []*Step) (sorted, exchanged []*Step) {
	for len(steps) > 0 {
		holders := make(map[string]*Step, len(steps))
		for _, s := range steps {
			if _, claim := claimOf(s.Before); claim != "" {
				holders[claim] = s
			}
		}
		var waiting []*Step
		for _, s := range steps {
			_, claim := claimOf(s.After)
			if holder := holders[claim]; claim != "" && holder != nil && holder != s {
				waiting = append(waiting, s)
				continue
			}
			sorted = append(sorted, s)
		}
		if len(waiting) == len(steps) {
			return append(sorted, waiting...), waiting
		}
		steps = waiting
	}
	return sorted, nil
}

// exchange is the error of objects that exchange values.
func exchange(steps []*Step) Problem {
	field, _ := claimOf(steps[0].After)
	var all []string
	for _, s := range steps {
		all = append(all, describe(s.Kind, s.Name, s.ID))
	}
	return Problem{
		Place: steps[0].Object.Document.Place, Subject: strings.Join(all, ", "), Field: field,
		Message: "each takes a value that another of them has, which one change cannot do",
		Remedy:  "apply one of them with another " + field + " that is free first, then these documents",
	}
}
