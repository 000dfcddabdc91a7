package filter

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// applier makes one call of Apply.
type applier struct {
	k         *Kernel
	changes   []Change
	left      []int // indices of changes that are not made yet
	errs      []error
	most      int  // changes of one transaction; 0: as many as fit
	conflicts int  // transactions that another program's came before
	reread    bool // the tables were read again because of the refusal that follows
}

// Apply implements Table. A long list is made in several transactions, each of at most
// maxTransaction bytes.
func (k *Kernel) Apply(ctx context.Context, changes []Change) []error {
	a := &applier{k: k, changes: changes}
	for i, c := range changes {
		if err := c.check(); err != nil {
			a.refuse(i, fmt.Errorf("filter: %w", err))
		} else {
			a.left = append(a.left, i)
		}
	}
	if err := k.ready(ctx); err != nil {
		a.refuseAll(err)
	}
	for len(a.left) > 0 {
		if err := a.transaction(ctx); err != nil {
			a.refuseAll(err)
		}
	}
	return a.errs
}

func (a *applier) refuse(i int, err error) {
	if a.errs == nil {
		a.errs = make([]error, len(a.changes))
	}
	if a.errs[i] == nil {
		a.errs[i] = err
	}
}

func (a *applier) refuseAll(err error) {
	for _, i := range a.left {
		a.refuse(i, err)
	}
	a.left = nil
}

// transaction makes the next changes, or removes those that the kernel refuses from the list.
// Its error is that of all which are left.
func (a *applier) transaction(ctx context.Context) error {
	k := a.k
	if !k.known {
		if err := k.ready(ctx); err != nil {
			return err
		}
	} else if err := ctx.Err(); err != nil {
		return err
	}
	d := newDraft(&k.have)
	messages, owners := a.messages(d)
	taken := a.taken(d, &messages, &owners)
	if len(messages) == 0 {
		d.commit()
		a.left = a.left[taken:]
		return nil
	}
	refused, err := k.c.transact(k.gen, messages)
	switch {
	case err == nil:
		k.committed()
		d.commit()
		k.forget(d)
		a.left, a.most, a.conflicts, a.reread = a.left[taken:], 0, 0, false
		return nil
	case errors.Is(err, unix.ERESTART):
		k.known = false
		if a.conflicts++; a.conflicts > maxConflicts {
			return fmt.Errorf("%w, %d times in a row; another program changes it all the time", errInterrupted, maxConflicts)
		}
		return nil
	case !a.reread && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EEXIST)):
		// Kernels before 6.16 delete a segment's chain together with its bridge, which is no
		// transaction.
		k.known, a.reread = false, true
		return nil
	}
	a.blame(refused, err, owners, taken)
	return nil
}

// messages begins the transaction with the deletion of what no change of ours made.
func (a *applier) messages(*draft) (messages []message, owners []int) {
	for _, e := range a.k.have.strange {
		messages, owners = append(messages, delElem(e)), append(owners, -1)
	}
	return messages, owners
}

// taken adds the messages of as many changes as fit, and returns how many changes they are.
func (a *applier) taken(d *draft, messages *[]message, owners *[]int) int {
	size := 0
	limit := min(maxTransaction, a.k.c.limit/2)
	for n, i := range a.left {
		if n > 0 && (size > limit || n == a.most) {
			return n
		}
		before := len(*messages)
		*messages = d.apply(a.changes[i], *messages)
		for _, m := range (*messages)[before:] {
			*owners = append(*owners, i)
			size += len(m)
		}
	}
	return len(a.left)
}

// blame gives the changes that the kernel refuses their errors. If it does not say which, the
// next transaction has half as many.
func (a *applier) blame(refused map[int]error, err error, owners []int, taken int) {
	named := map[int]bool{}
	for at, told := range refused {
		if i := owners[at]; i >= 0 {
			a.refuse(i, fmt.Errorf("filter: %w", told))
			named[i] = true
		} else {
			a.k.have.strange = nil
		}
	}
	switch {
	case len(named) > 0:
		var left []int
		for _, i := range a.left {
			if !named[i] {
				left = append(left, i)
			}
		}
		a.left = left
	case len(refused) > 0: // of the strange ones only
	case taken == 1:
		a.refuse(a.left[0], fmt.Errorf("filter: %w", err))
		a.left = a.left[1:]
	default:
		a.most = taken / 2
	}
}
