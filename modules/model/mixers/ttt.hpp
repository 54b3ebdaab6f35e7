// TTT-Linear and TTT-MLP (Sun et al. 2024, arXiv:2407.04620); the equations are in docs/ttt.md. They differ in the
// inner model: one linear layer of a head's width, or an MLP four times as wide.
#pragma once

#include "model/mixer.hpp"
#include "model/mixers/registry.hpp"
#include "model/mixers/ttt_options.hpp"

namespace lockstep::model {

class TttType final : public MixerType {
  public:
    TttType(std::string name, bool mlp, double default_base_lr);
    TttOptions options(const config::ModelDescription& model) const;  // with the default inner rate filled in

    std::string section() const override { return ttt_section; }
    std::vector<config::OptionKey> keys() const override { return ttt_keys(); }
    void resolve(config::ModelDescription& model) const override;
    void check(const config::ModelDescription& model) const override;
    std::string why_impossible(const config::ModelDescription& model, const MixerLayout& layout) const override;
    bool hands_over() const override { return true; }
    void describe(const config::ModelDescription& model, ParameterLister& lister) const override;
    bool scales_residual_projections() const override { return false; }
    bool convolves_before(const config::ModelDescription& model) const override;
    double initial_inner_rate(const config::ModelDescription& model) const override;
    std::int64_t scratch_floats(const config::ModelDescription& model, std::int64_t tensor, const PassShape& shape,
                                Type compute, int threads) const override;
    std::unique_ptr<Mixer> make(Backend& backend, const ParameterSet& parameters, std::int64_t number,
                                const config::ModelDescription& model, const Neighbours& neighbours) const override;

  private:
    std::int64_t hidden(const config::ModelDescription& model) const;  // columns of the inner model's first layer
    bool mlp_;
    double default_base_lr_;
};

std::unique_ptr<MixerType> ttt_linear_type();
std::unique_ptr<MixerType> ttt_mlp_type();

// The run-time half (ttt_mixer.cpp).
std::unique_ptr<Mixer> make_ttt_mixer(Backend& backend, const ParameterSet& parameters, std::int64_t number,
                                      const config::ModelDescription& model, const TttOptions& options, bool mlp,
                                      const Neighbours& neighbours);

}  // namespace lockstep::model
