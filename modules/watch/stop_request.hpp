// Stop requests by the signals USR1, TERM and INT. The first lets the step finish and a checkpoint be written; a second
// TERM or INT at least 2 seconds after the first of these ends the process at once (the last checkpoint is safe, since
// files are renamed only when complete).
#pragma once

namespace lockstep::watch {

void watch_signals();
int requested_signal();  // 0: none
const char* signal_word(int signal);

}  // namespace lockstep::watch
