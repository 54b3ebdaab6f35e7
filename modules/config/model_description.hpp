// What a model is: sizes, layers, and the named presets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/words.hpp"

namespace lockstep::config {

struct TttSection {
    std::int64_t mini_batch = 16;
    double base_lr = 0;         // 0: 1.0 for ttt-linear, 0.1 for ttt-mlp
    double base_lr_warmup = 0;  // > 0: the inner rate starts here and reaches base_lr over the outer warm-up
    bool gate = false, share_qk = false, pre_conv = false;
    bool operator==(const TttSection&) const = default;
};

struct ModelDescription {
    std::string preset;
    std::string mixer = "attention";  // "attention" | "ttt-linear" | "ttt-mlp"
    std::int64_t width = 0, layers = 0, heads = 0;
    std::int64_t kv_heads = 0;   // 0: as many as heads
    std::int64_t mlp_width = 0;  // 0: 4 · width
    std::int64_t vocabulary = 0, context = 0;
    NormKind norm = NormKind::rms;
    double norm_epsilon = 1e-6;
    MlpKind mlp = MlpKind::swiglu;
    Position position = Position::rope;
    double rope_theta = 10000;
    RopeScaling rope_scaling = RopeScaling::none;
    bool tied_head = true;
    Bias bias = Bias::none;
    std::vector<std::string> frozen;  // parameter-name patterns that are not trained
    TttSection ttt;

    bool operator==(const ModelDescription&) const = default;
    std::int64_t head_width() const { return heads > 0 ? width / heads : 0; }
    bool is_ttt() const { return mixer != "attention"; }
    double base_lr() const { return ttt.base_lr > 0 ? ttt.base_lr : mixer == "ttt-mlp" ? 0.1 : 1.0; }
};

std::vector<std::string> preset_names();
ModelDescription preset(const std::string& name);  // resolved; unknown: usage error that names the nearest
// Fills in what follows from other keys: kv_heads, mlp_width, base_lr; "rope" is "none" for TTT, which rotates by
// itself.
void resolve(ModelDescription& model);
void check(const ModelDescription& model);  // sizes that fit together; usage errors

}  // namespace lockstep::config
