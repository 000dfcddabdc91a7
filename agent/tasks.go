package agent

import "rutter/log"

// OpenTasks are the tasks of this compute node that have not ended, as the agent
// holds them. Nobody may change them.
func (a *Agent) OpenTasks() (tasks []*log.Task) {
	a.replica.mu.RLock()
	defer a.replica.mu.RUnlock()
	for rec := range a.replica.state.OpenTasksOn(a.cfg.CN) {
		tasks = append(tasks, rec.Object.(*log.Task))
	}
	return tasks
}
