// Requests to stop: the signals USR1, TERM and INT. The first lets the step finish and a checkpoint be written; a
// second TERM or INT, 2 seconds or more after the first of these, ends the process at once (the last whole checkpoint
// is safe, since a file is renamed only when it is whole).
#pragma once

namespace lockstep::watch {

void watch_signals();
int requested_signal();  // 0: none
const char* signal_word(int signal);

}  // namespace lockstep::watch
