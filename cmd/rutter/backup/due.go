package backup

import (
	"fmt"
	"time"
)

// due returns when the next backup is due. The slots of a schedule are the multiples of
// its interval since 1970 (UTC); the servers of a cluster share an interval evenly, in
// the order of their names, so that they never make backups at the same time. A slot
// that passed while the server was down, or could not make a backup, is made up once.
//
// Clocks may jump. After a jump ahead one backup is made. A last backup that is in the
// future, after a jump back, counts as made when it was found.
func (s *Schedule) due(now time.Time) time.Time {
	i, n := s.cfg.Rank()
	offset := s.cfg.Every * time.Duration(i) / time.Duration(max(n, 1))
	s.mu.Lock()
	defer s.mu.Unlock()
	last := time.Time{}
	if s.st.Last != nil {
		last = s.lastAt(now)
	}
	next := nextSlot(last, s.cfg.Every, offset)
	if next.Before(now) { // missed: after a grace, so that servers that start together do not make it up together
		grace := min(s.cfg.Every/100, maxGrace) * time.Duration(i+1)
		if up := time.Since(s.opened); up < grace {
			next = now.Add(grace - up)
		}
	}
	s.st.Next = next
	return next
}

// nextSlot returns the first slot that is more than a quarter of the interval after a
// time: a slot right after a backup that was made up is not used.
func nextSlot(after time.Time, every, offset time.Duration) time.Time {
	if after.IsZero() {
		return time.Unix(0, 0).UTC().Add(offset)
	}
	after = after.Add(every / 4)
	begin := time.Unix(0, 0).UTC().Add(offset)
	slots := after.Sub(begin)/every + 1
	return begin.Add(slots * every)
}

// Now makes a backup now, beside the schedule. It returns when that was asked for:
// Status.Made or Status.Failures rises when it has ended. An error says that there is no schedule.
func (s *Schedule) Now() error {
	if s == nil {
		return fmt.Errorf("this server makes no backups: give it --backup-every, and --backup-folder")
	}
	select {
	case s.asked <- struct{}{}:
	default: // one is asked for already
	}
	return nil
}

// Status returns what the schedule has done, and will do.
func (s *Schedule) Status() Status {
	if s == nil {
		return Status{}
	}
	now := s.cfg.Now()
	s.due(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.st
	if st.Last != nil {
		last := *st.Last
		st.Last, st.Age = &last, now.Sub(s.lastAt(now)).Seconds()
	}
	st.Alarms = s.alarms(&st, now)
	return st
}

// Alarms returns what an operator must act on.
func (s *Schedule) Alarms() []string {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alarms(&s.st, s.cfg.Now())
}

// alarms returns the alarms of a status: the last try failed, the newest backup is older than
// two intervals, or a kept one is damaged.
func (s *Schedule) alarms(st *Status, now time.Time) (alarms []string) {
	if st.Error != "" {
		alarms = append(alarms, fmt.Sprintf("backup: %s makes none, the last try at %s failed: %s", s.cfg.Server, st.FailedAt.UTC().Format(time.RFC3339), st.Error))
	}
	for _, d := range st.Damaged {
		alarms = append(alarms, fmt.Sprintf("backup: %s of %s is damaged since it was made: %s; make another (rutter snapshot now), look at the disk of the folder, and delete the file", d.Name, s.cfg.Server, d.Reason))
	}
	const late = 2 // intervals
	switch old := late * s.cfg.Every; {
	case st.Last == nil && time.Since(s.opened) > old:
		alarms = append(alarms, fmt.Sprintf("backup: %s has none after %v", s.cfg.Server, time.Since(s.opened).Round(time.Second)))
	case st.Last != nil && now.Sub(s.lastAt(now)) > old:
		alarms = append(alarms, fmt.Sprintf("backup: the newest of %s is %v old, and one is due every %v", s.cfg.Server, now.Sub(s.lastAt(now)).Round(time.Second), s.cfg.Every))
	}
	return alarms
}
