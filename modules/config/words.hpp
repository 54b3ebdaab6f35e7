// The closed sets of words of run descriptions and machine files: one enum class each, with its words in order.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::config {

// unsigned char lets a setting point to any of them (Choice below).
enum class DeviceChoice : unsigned char { any, cpu, cuda };
enum class NormKind : unsigned char { rms, layer };
enum class MlpKind : unsigned char { swiglu, gelu };
enum class Position : unsigned char { rope, learned, none };
enum class RopeScaling : unsigned char { none, llama3 };
enum class Bias : unsigned char { none, qkv, all };
enum class DataOrder : unsigned char { random, sequential };
// Whether tokens see the other documents of their sequence.
enum class DocumentMode : unsigned char { joined, separate };
enum class Decay : unsigned char { all, matrices };
enum class ScheduleKind : unsigned char { cosine, linear, constant, wsd };
enum class Precision : unsigned char { fp32, bf16, fp16 };
// What GPUs leave to host memory: fp32 parameters and optimizer state, which the CPU then updates.
enum class Offload : unsigned char { none, moments };
// What of a forward pass is recomputed in the backward pass instead of kept.
enum class Recompute : unsigned char {
    none,
    cheap,      // what costs no matrix product: normed rows, activated columns
    selective,  // that and the MLP's columns before their activation
    full        // all but the residual stream between blocks
};
// When a checkpoint gets its name.
enum class CheckpointVerify : unsigned char {
    read,    // what was written is also read back from the disk and compared with its checksums
    written  // all is checksummed, written and synced
};
enum class TraceDetail : unsigned char { off, step, phase, layer };
enum class SyncMode : unsigned char {
    async,       // the host waits only for the scalars of the step before
    bounded,     // as async, but up to bounded_steps steps ahead
    phase,       // waits at the end of every phase of a step: phase times are those of the device
    collective,  // waits before and after every collective operation, with a barrier before it: finds who hangs
    launch       // waits after every kernel and checks it: the error names the kernel
};
// Before the first step.
enum class SelfTest : unsigned char { off, on, full };  // full: the doctor too
enum class MachineKind : unsigned char { gpu, cpu };
enum class PlanOrder : unsigned char { time, tokens, gpu_hours };
enum class Outcome : unsigned char { ok, oom };  // of a measured layout

// The words of each, by value.
template <class Enum>
inline constexpr auto words_in = std::array<std::string_view, 0>{};
template <>
inline constexpr auto words_in<Outcome> = std::to_array<std::string_view>({"ok", "oom"});
template <>
inline constexpr auto words_in<bool> = std::to_array<std::string_view>({"false", "true"});
template <>
inline constexpr auto words_in<DeviceChoice> = std::to_array<std::string_view>({"auto", "cpu", "cuda"});
template <>
inline constexpr auto words_in<NormKind> = std::to_array<std::string_view>({"rms", "layer"});
template <>
inline constexpr auto words_in<MlpKind> = std::to_array<std::string_view>({"swiglu", "gelu"});
template <>
inline constexpr auto words_in<Position> = std::to_array<std::string_view>({"rope", "learned", "none"});
template <>
inline constexpr auto words_in<RopeScaling> = std::to_array<std::string_view>({"none", "llama3"});
template <>
inline constexpr auto words_in<Bias> = std::to_array<std::string_view>({"none", "qkv", "all"});
template <>
inline constexpr auto words_in<DataOrder> = std::to_array<std::string_view>({"random", "sequential"});
template <>
inline constexpr auto words_in<DocumentMode> = std::to_array<std::string_view>({"joined", "separate"});
template <>
inline constexpr auto words_in<Decay> = std::to_array<std::string_view>({"all", "matrices"});
template <>
inline constexpr auto words_in<ScheduleKind> = std::to_array<std::string_view>({"cosine", "linear", "constant", "wsd"});
template <>
inline constexpr auto words_in<Precision> = std::to_array<std::string_view>({"fp32", "bf16", "fp16"});
template <>
inline constexpr auto words_in<Offload> = std::to_array<std::string_view>({"none", "moments"});
template <>
inline constexpr auto words_in<Recompute> = std::to_array<std::string_view>({"none", "cheap", "selective", "full"});
template <>
inline constexpr auto words_in<CheckpointVerify> = std::to_array<std::string_view>({"read", "written"});
template <>
inline constexpr auto words_in<TraceDetail> = std::to_array<std::string_view>({"off", "step", "phase", "layer"});
template <>
inline constexpr auto words_in<SyncMode> = std::to_array<std::string_view>({"async", "bounded", "phase", "collective",
                                                                            "launch"});
template <>
inline constexpr auto words_in<SelfTest> = std::to_array<std::string_view>({"false", "true", "full"});
template <>
inline constexpr auto words_in<MachineKind> = std::to_array<std::string_view>({"gpu", "cpu"});
template <>
inline constexpr auto words_in<PlanOrder> = std::to_array<std::string_view>({"time", "tokens", "gpu-hours"});

template <class Enum>
concept Worded = !words_in<Enum>.empty();

template <Worded Enum>
std::string word_of(Enum value) {
    return std::string(words_in<Enum>.at(static_cast<std::size_t>(value)));
}

// A value of any of these enums, for code that knows only its words.
struct Choice {
    unsigned char* value;
    std::span<const std::string_view> words;
};
template <Worded Enum>
Choice choice_of(Enum& value) {
    return {reinterpret_cast<unsigned char*>(&value), words_in<Enum>};
}

// Usage error naming the nearest word and all of them: "NAME = "word": did you mean …". `words` has no empty one.
[[noreturn]] void refuse_word(const std::string& name, std::string_view word, const std::vector<std::string>& words);
std::vector<std::string> texts_of(std::span<const std::string_view> words);

// The value whose word was given to an option or key called `name`; else refuse_word's error.
template <Worded Enum>
Enum from_word(std::string_view word, const std::string& name) {
    for (std::size_t i = 0; i < words_in<Enum>.size(); ++i)
        if (words_in<Enum>[i] == word) return static_cast<Enum>(i);
    refuse_word(name, word, texts_of(words_in<Enum>));
}

}  // namespace lockstep::config
