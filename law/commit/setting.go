package commit

import "github.com/keep-run/keep"

// setting refuses a call that would undo a later one, or come into one that is being sent again. The next commit of a group
// is judged by what this one records, too.
func (d *decision) setting(c keep.Setting) error {
	for _, tool := range c.Tools {
		k := SettingKey{tool, string(c.Identity)}
		known := d.Settings.Get(k)
		for _, m := range known {
			if c.Bars(m, d.at) {
				return &keep.RivalError{Key: c.Key, Rival: m.Key}
			}
		}
		d.Settings.Put(k, known)
	}
	return nil
}

// noteSetting adds a record to those of its identity, if they were asked for. What it was before stays: the commit may still be
// refused. Who is refused for what is no more looks again.
func (d *decision) noteSetting(m keep.Mutation) {
	if len(d.Settings.list) == 0 { // as for nearly every commit
		return
	}
	if k := (SettingKey{m.Tool, string(m.Identity)}); d.Settings.Has(k) {
		d.AddSetting(k, m)
	}
}
