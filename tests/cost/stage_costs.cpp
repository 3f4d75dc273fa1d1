#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/cost/analytic.hpp>
#include <dynapipe/cost/stage_costs.hpp>

using namespace dynapipe;

namespace {

constexpr recompute_mode modes[] = {recompute_mode::none, recompute_mode::selective, recompute_mode::full};

model_spec decoder_only(std::int64_t layers) { return presets::gpt("gpt", layers, 64, 4); }
model_spec encoder_decoder(std::int64_t encoder, std::int64_t decoder) {
  model_spec model = presets::t5("t5", 1);
  model.encoder_layers = encoder;
  model.decoder_layers = decoder;
  return model;
}

/// The layers of a stage one by one, as documented: sums of times and stored bytes, the forward's peak over all of the
/// stored by the largest excess of one layer; the hidden states that come in are not this stage's stored bytes.
stage_cost layer_by_layer(const model_spec& model, const stage_spec& stage, const analytic_cost& cost, const shape& s,
                          recompute_mode mode) {
  stage_cost sum{.recompute = mode};
  bytes excess{0};
  const auto layer = [&](layer_kind kind, const shape& seen) {
    sum.forward += cost.forward(kind, seen, mode);
    sum.backward += cost.backward(kind, seen, mode);
    sum.stored += cost.stored(kind, seen, mode);
    excess = std::max(excess, cost.forward_peak(kind, seen, mode) - cost.stored(kind, seen, mode));
    sum.backward_peak = std::max(sum.backward_peak, cost.backward_peak(kind, seen, mode));
  };
  const bool starts_encoder = stage.encoder.count() > 0 && stage.encoder.from == 0;
  const bool starts_decoder = stage.decoder.count() > 0 && stage.decoder.from == 0;
  if (stage.embedding) {
    shape embedded{s.rows, 0, 0};
    if (starts_encoder || !model.encoder_decoder()) embedded.input += s.input;
    if (starts_decoder && model.encoder_decoder()) embedded.input += s.target;
    layer(layer_kind::embedding, embedded);
  }
  for (std::int64_t i = 0; i < stage.encoder.count(); ++i)
    layer(layer_kind::encoder, s);
  for (std::int64_t i = 0; i < stage.decoder.count(); ++i)
    layer(model.decoder_kind(), s);
  if (stage.head) layer(layer_kind::head, s);

  std::int64_t comes_in = 0;  // tokens of hidden states that the stage's first layer holds as its input
  if (stage.encoder.count() > 0) {
    if (stage.encoder.from > 0) comes_in = s.input;
  } else if (stage.decoder.from > 0) {
    comes_in = model.encoder_decoder() ? s.target : s.input;
  }
  sum.stored -= bytes{s.rows * comes_in * model.hidden * size_of(model.type)};
  sum.forward_peak = sum.stored + excess;
  return sum;
}

/// A cost model that counts how often it is asked.
struct counting_model {
  const analytic_cost* inner;
  std::int64_t* asked;
  nanoseconds forward(layer_kind k, const shape& s, recompute_mode r) const {
    ++*asked;
    return inner->forward(k, s, r);
  }
  nanoseconds backward(layer_kind k, const shape& s, recompute_mode r) const { return inner->backward(k, s, r); }
  bytes stored(layer_kind k, const shape& s, recompute_mode r) const { return inner->stored(k, s, r); }
  bytes forward_peak(layer_kind k, const shape& s, recompute_mode r) const { return inner->forward_peak(k, s, r); }
  bytes backward_peak(layer_kind k, const shape& s, recompute_mode r) const { return inner->backward_peak(k, s, r); }
  bytes state(layer_kind k) const { return inner->state(k); }
};

/// `parts` runs of layers of any length, some of them perhaps of one layer.
std::vector<stage_spec> random_stages(const model_spec& model, std::int64_t parts, std::mt19937_64& random) {
  std::vector<std::int64_t> cuts{0, model.layers()};
  while (static_cast<std::int64_t>(cuts.size()) < parts + 1) {
    const auto cut = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(model.layers()));
    if (std::find(cuts.begin(), cuts.end(), cut) == cuts.end()) cuts.push_back(cut);
  }
  std::sort(cuts.begin(), cuts.end());
  std::vector<stage_spec> stages;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    const std::int64_t e = model.encoder_layers;
    stage_spec stage{.encoder = {std::min(cuts[i], e), std::min(cuts[i + 1], e)},
                     .decoder = {std::max(cuts[i] - e, std::int64_t{0}), std::max(cuts[i + 1] - e, std::int64_t{0})}};
    stage.embedding = i == 0 || (e > 0 && stage.decoder.count() > 0 && stage.decoder.from == 0);
    stage.head = i + 2 == cuts.size();
    stages.push_back(stage);
  }
  return stages;
}

}  // namespace

TEST_CASE("cost of a stage is that of its layers one by one; all stages at once cost the same") {
  constexpr unsigned seed = 5'150;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  for (int round = 0; round < 3'000; ++round) {
    const bool both = below(2) == 0;
    model_spec model = both ? encoder_decoder(1 + below(6), 1 + below(6)) : decoder_only(1 + below(12));
    if (below(2) == 0) model.kernel = attention_kernel::unfused;
    if (below(4) == 0) model.type = dtype::fp32;
    const analytic_cost cost{model, presets::a100_80g()};
    const std::int64_t count = 1 + below(model.layers());
    const std::vector<stage_spec> stages =
        below(2) == 0 ? split_layers(model, count) : random_stages(model, count, random);
    const shape s{1 + below(6), 8 * (1 + below(64)), both ? 8 * (1 + below(64)) : 0};
    const recompute_mode mode = modes[below(3)];
    CAPTURE(round);
    std::vector<stage_cost> all(1);
    costs_of_stages(model, stages, cost, s, mode, all);
    REQUIRE(all.size() == stages.size() + 1);
    CHECK(all.front() == stage_cost{});
    for (std::size_t i = 0; i < stages.size(); ++i) {
      CAPTURE(i);
      const stage_cost one = cost_of_stage(model, stages[i], cost, s, mode);
      REQUIRE(all[i + 1] == one);
      const stage_cost naive = layer_by_layer(model, stages[i], cost, s, mode);
      REQUIRE(one.forward == naive.forward);
      REQUIRE(one.backward == naive.backward);
      REQUIRE(one.weight == nanoseconds{0});
      REQUIRE(one.stored.value() == naive.stored.value());
      REQUIRE(one.forward_peak.value() == naive.forward_peak.value());
      REQUIRE(one.backward_peak == naive.backward_peak);
      REQUIRE(one.recompute == mode);
    }
  }
}

TEST_CASE("all stages at once ask the model once for each kind") {
  std::int64_t asked = 0;
  const model_spec model = decoder_only(32);
  const analytic_cost inner{model, presets::h100()};
  std::vector<stage_cost> all;
  costs_of_stages(model, split_layers(model, 32), counting_model{&inner, &asked}, shape{2, 64, 0}, recompute_mode::none,
                  all);
  CHECK(all.size() == 32);
  CHECK(asked == 3);  // embedding, decoder, head
}

TEST_CASE("costs of a stage are held at the largest value") {
  const model_spec model = presets::gpt_29b();
  const analytic_cost cost{model, presets::a100_40g()};
  constexpr std::int64_t length = std::int64_t{1} << 32;
  for (const stage_spec& stage : split_layers(model, 4))
    for (const recompute_mode mode : modes) {
      const stage_cost c = cost_of_stage(model, stage, cost, {length, length, 0}, mode);
      CHECK(c.forward == nanoseconds::max());
      CHECK(c.backward == nanoseconds::max());
      CHECK(c.stored == bytes::max());
      CHECK(c.forward_peak == bytes::max());
      CHECK(load_bytes(model, stage, {length, length, 0}) == (stage.embedding || stage.head ? bytes::max() : bytes{0}));
    }
}

TEST_CASE("what stages load: tokens where they embed, labels at the head") {
  const model_spec gpt = decoder_only(3);
  const std::vector<stage_spec> cut = split_layers(gpt, 3);
  const shape s{3, 128, 0};
  CHECK(load_bytes(gpt, cut[0], s) == bytes{3 * 128 * 4});
  CHECK(load_bytes(gpt, cut[1], s) == bytes{0});
  CHECK(load_bytes(gpt, cut[2], s) == bytes{3 * 128 * 4});
  CHECK(load_bytes(gpt, split_layers(gpt, 1)[0], s) == bytes{2 * 3 * 128 * 4});

  const model_spec t5 = encoder_decoder(2, 2);
  const std::vector<stage_spec> stages = split_layers(t5, 4);
  const shape both{3, 128, 16};
  CHECK(load_bytes(t5, stages[0], both) == bytes{3 * 128 * 4});
  CHECK(load_bytes(t5, stages[1], both) == bytes{0});
  CHECK(load_bytes(t5, stages[2], both) == bytes{3 * 16 * 4});
  CHECK(load_bytes(t5, stages[3], both) == bytes{3 * 16 * 4});
  CHECK(load_bytes(t5, split_layers(t5, 1)[0], both) == bytes{3 * (128 + 16 + 16) * 4});
  // Encoder and decoder begin on one stage, and the head stands elsewhere.
  const stage_spec start{.encoder = {0, 2}, .decoder = {0, 1}, .embedding = true};
  CHECK(load_bytes(t5, start, both) == bytes{3 * (128 + 16) * 4});
}

TEST_CASE("model state of devices: one embedding each, a tied head's copy where there is none") {
  const model_spec tied = decoder_only(4);
  model_spec untied = tied;
  untied.tied_head = false;
  const auto devices = [](std::initializer_list<int> list) {
    std::vector<device_id> result;
    for (const int d : list)
      result.push_back(device_id{d});
    return result;
  };
  for (const model_spec& model : {tied, untied}) {
    const analytic_cost cost{model, presets::a100_80g()};
    const std::int64_t layer = cost.state(layer_kind::decoder).value();
    const std::int64_t embedding = cost.state(layer_kind::embedding).value();
    const std::int64_t head = cost.state(layer_kind::head).value();
    const std::vector<stage_spec> stages = split_layers(model, 4);
    const auto state = [&](const std::vector<device_id>& where, int d) {
      return state_of_device(model, stages, where, device_id{d}, cost).value();
    };
    const auto line = devices({0, 1, 2, 3});
    CHECK(state(line, 0) == layer + embedding);
    CHECK(state(line, 1) == layer);
    CHECK(state(line, 2) == layer);
    CHECK(state(line, 3) == layer + head);
    CHECK(state(line, 4) == 0);
    const auto v = devices({0, 1, 1, 0});
    CHECK(state(v, 0) == 2 * layer + embedding + (model.tied_head ? 0 : head));
    CHECK(state(v, 1) == 2 * layer);
    const auto alternating = devices({0, 1, 0, 1});
    CHECK(state(alternating, 0) == 2 * layer + embedding);
    CHECK(state(alternating, 1) == 2 * layer + head);
  }
  // Both embeddings of an encoder-decoder are one matrix, wherever they share a device.
  const model_spec t5 = encoder_decoder(2, 2);
  const analytic_cost cost{t5, presets::a100_80g()};
  const std::vector<stage_spec> stages = split_layers(t5, 4);
  const auto v = devices({0, 1, 1, 0});
  const std::int64_t encoder = cost.state(layer_kind::encoder).value();
  const std::int64_t decoder = cost.state(layer_kind::cross_decoder).value();
  const std::int64_t embedding = cost.state(layer_kind::embedding).value();
  CHECK(state_of_device(t5, stages, v, device_id{0}, cost).value() == encoder + decoder + embedding);
  CHECK(state_of_device(t5, stages, v, device_id{1}, cost).value() == encoder + decoder + embedding);
}

namespace {

/// A cost model that splits its backward: two thirds of it, rounded up, are the weight half.
struct halving_model : analytic_cost {
  using analytic_cost::analytic_cost;
  nanoseconds backward_input(layer_kind k, const shape& s, recompute_mode r) const {
    return backward(k, s, r) - backward_weight(k, s, r);
  }
  nanoseconds backward_weight(layer_kind k, const shape& s, recompute_mode r) const {
    return nanoseconds{(2 * backward(k, s, r).value() + 2) / 3};
  }
  bytes weight_stored(layer_kind k, const shape& s, recompute_mode r) const { return stored(k, s, r) - bytes{1}; }
};
static_assert(split_cost_model<halving_model>);
static_assert(!split_cost_model<counting_model>);

/// A cost model that refuses rows above 4 for want of memory, and knows lengths up to 64.
struct narrow_model : analytic_cost {
  using analytic_cost::analytic_cost;
  bool extrapolates(layer_kind kind, const shape& s, recompute_mode) const {
    return kind == layer_kind::decoder && s.input > 64;
  }
  std::string refusal(layer_kind kind, const shape& s, recompute_mode) const {
    return kind == layer_kind::head && s.rows > 4 ? "head: more than 4 rows ran out of memory" : "";
  }
};

}  // namespace

TEST_CASE("a split backward: halves of each layer, and what the weight half returns lies within what is stored") {
  for (const model_spec& model : {decoder_only(5), encoder_decoder(3, 4)}) {
    const halving_model cost{model, presets::h100()};
    for (const stage_spec& stage : split_layers(model, 3))
      for (const recompute_mode mode : modes) {
        const shape s{3, 128, model.encoder_decoder() ? 40 : 0};
        const stage_cost whole = cost_of_stage(model, stage, cost, s, mode);
        const stage_cost halves = split_cost_of_stage(model, stage, cost, s, mode);
        CHECK(halves.backward + halves.weight == whole.backward);
        CHECK(halves.weight > halves.backward);
        CHECK(halves.forward == whole.forward);
        CHECK(halves.stored == whole.stored);
        CHECK(halves.forward_peak == whole.forward_peak);
        CHECK(halves.backward_peak == whole.backward_peak);
        CHECK(halves.weight_stored <= halves.stored);
        CHECK(halves.weight_stored > bytes{0});
        CHECK(whole.weight == nanoseconds{0});
        CHECK(whole.weight_stored == bytes{0});
      }
  }
  // By hand: an inner stage of two decoder layers.
  const model_spec model = decoder_only(4);
  const halving_model cost{model, presets::h100()};
  const shape s{2, 64, 0};
  const auto none = recompute_mode::none;
  const stage_cost inner = split_cost_of_stage(model, {.encoder = {}, .decoder = {1, 3}}, cost, s, none);
  CHECK(inner.weight == 2 * cost.backward_weight(layer_kind::decoder, s, none));
  CHECK(inner.backward == 2 * cost.backward_input(layer_kind::decoder, s, none));
  CHECK(inner.stored == 2 * cost.stored(layer_kind::decoder, s, none) - bytes{2 * 64 * 64 * 2});
  CHECK(inner.weight_stored == inner.stored);
}

TEST_CASE("under sequence parallelism a stage's input is the rank's part of the tokens") {
  const model_spec model = decoder_only(4);
  const analytic_cost cost{model, presets::h100()};
  const stage_spec inner{.encoder = {}, .decoder = {1, 3}};
  const shape s{2, 72, 0};
  const auto stored = [&](const tensor_group& group) {
    return cost_of_stage(model, inner, cost, s, recompute_mode::none, group).stored.value();
  };
  const std::int64_t layers = 2 * cost.stored(layer_kind::decoder, s, recompute_mode::none).value();
  CHECK(stored({}) == layers - 2 * 72 * 64 * 2);
  CHECK(stored({.ranks = 5}) == layers - 2 * 72 * 64 * 2);
  CHECK(stored({.ranks = 5, .sequence = true}) == layers - 2 * 15 * 64 * 2);
  std::vector<stage_cost> all;
  costs_of_stages(model, split_layers(model, 3), cost, s, recompute_mode::none, all, {.ranks = 5, .sequence = true});
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(all[i] == cost_of_stage(model, split_layers(model, 3)[i], cost, s, recompute_mode::none,
                                  {.ranks = 5, .sequence = true}));
}

TEST_CASE("what a cost model says of shapes beyond it is asked of every layer that the stages hold") {
  const model_spec model = decoder_only(4);
  const narrow_model cost{model, presets::h100()};
  const auto none = recompute_mode::none;
  const std::vector<stage_spec> stages = split_layers(model, 2);
  CHECK_FALSE(extrapolates_somewhere(model, stages, cost, shape{9, 64, 0}, none));
  CHECK(extrapolates_somewhere(model, stages, cost, shape{1, 72, 0}, none));
  CHECK(first_refusal(model, stages, cost, shape{4, 4096, 0}, none).empty());
  CHECK(first_refusal(model, stages, cost, shape{5, 8, 0}, none) == "head: more than 4 rows ran out of memory");
  CHECK(first_refusal(model, {stages[0]}, cost, shape{5, 8, 0}, none).empty());
  const analytic_cost silent{model, presets::h100()};
  CHECK_FALSE(extrapolates_somewhere(model, stages, silent, shape{1 << 20, 1 << 20, 0}, none));
  CHECK(first_refusal(model, stages, silent, shape{std::int64_t{1} << 32, std::int64_t{1} << 32, 0}, none).empty());
}
