#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/cost/analytic.hpp>

using namespace dynapipe;

namespace {

constexpr recompute_mode modes[] = {recompute_mode::none, recompute_mode::selective, recompute_mode::full};
constexpr layer_kind kinds[] = {layer_kind::embedding, layer_kind::encoder, layer_kind::decoder,
                                layer_kind::cross_decoder, layer_kind::head};

model_spec gpt(std::int64_t hidden, std::int64_t heads, attention_kernel kernel) {
  model_spec model = presets::gpt("gpt", 2, hidden, heads);
  model.kernel = kernel;
  return model;
}

/// 5 x 10^4 FLOPs, 10^6 bytes of memory and 100 bytes of a link a nanosecond; no floor.
cluster_spec round_cluster() {
  return {.name = "round",
          .memory = gib(1),
          .matmul_tflops = 100,
          .memory_gbps = 1e6,
          .efficiency = 0.5,
          .intra_node = {.latency = nanoseconds{10}, .gbps = 800},
          .inter_node = {.latency = nanoseconds{1'000}, .gbps = 80}};
}

/// 98,304 FLOPs a token and 256 a pair of query and key (128 under a causal mask that is skipped).
model_spec small_model() {
  model_spec model = gpt(64, 2, attention_kernel::fused);
  model.vocabulary = 1'000;
  return model;
}

/// 2,048 tokens, 2^20 pairs.
constexpr shape four_rows{4, 512, 0};

template <class Shape>
std::array<std::int64_t, 8> every_cost(const analytic_cost& cost, layer_kind kind, const Shape& s,
                                       recompute_mode mode) {
  return {cost.forward(kind, s, mode).value(),        cost.backward(kind, s, mode).value(),
          cost.backward_input(kind, s, mode).value(), cost.backward_weight(kind, s, mode).value(),
          cost.stored(kind, s, mode).value(),         cost.weight_stored(kind, s, mode).value(),
          cost.forward_peak(kind, s, mode).value(),   cost.backward_peak(kind, s, mode).value()};
}

std::string complaint(const model_spec& model, const cluster_spec& cluster, std::int64_t tensor) {
  try {
    const analytic_cost cost{model, cluster, {.tensor_parallel = tensor}};
  } catch (const error& e) {
    return e.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("stored bytes of a GPT layer are Korthikanti's closed forms") {
  constexpr std::int64_t h = 4096, a = 32;
  for (const std::int64_t t : {1, 2, 4, 8})
    for (const std::int64_t b : {1, 3, 16})
      for (const std::int64_t s : {8, 128, 2048, 8192}) {
        CAPTURE(t);
        CAPTURE(b);
        CAPTURE(s);
        const shape seen{b, s, 0};
        const analytic_cost unfused{gpt(h, a, attention_kernel::unfused), presets::a100_80g(), {.tensor_parallel = t}};
        const std::int64_t linear = s * b * h * 10 + s * b * h * 24 / t;
        CHECK(unfused.stored(layer_kind::decoder, seen, recompute_mode::none).value() ==
              linear + 5 * a * s * s * b / t);
        CHECK(unfused.stored(layer_kind::decoder, seen, recompute_mode::selective).value() == linear);
        CHECK(unfused.stored(layer_kind::decoder, seen, recompute_mode::full).value() == 2 * s * b * h);
        if (t == 1) CHECK(linear == 34 * s * b * h);
        CHECK(unfused.stored(layer_kind::encoder, seen, recompute_mode::none) ==
              unfused.stored(layer_kind::decoder, seen, recompute_mode::none));

        const analytic_cost fused{gpt(h, a, attention_kernel::fused), presets::a100_80g(), {.tensor_parallel = t}};
        CHECK(fused.stored(layer_kind::decoder, seen, recompute_mode::none).value() == linear + 4 * a * s * b / t);
        CHECK(fused.stored(layer_kind::decoder, seen, recompute_mode::selective).value() == linear);
        CHECK(fused.stored(layer_kind::decoder, seen, recompute_mode::full).value() == 2 * s * b * h);
      }
}

TEST_CASE("stored bytes of gated, grouped-query and cross-attending layers, term by term") {
  const model_spec llama = presets::llama_3_8b();
  const analytic_cost cost{llama, presets::h100()};
  const std::int64_t tokens = 3 * 256;
  // Two norms' and two blocks' inputs, queries and output, keys and values, gate, up and their product; no dropout.
  const std::int64_t kept = 8 * 4096 + 2 * (2 * 4096 + 2 * 1024) + 2 * 3 * 14'336;
  CHECK(cost.stored(layer_kind::decoder, {3, 256, 0}, recompute_mode::selective).value() == tokens * kept);
  CHECK(cost.stored(layer_kind::decoder, {3, 256, 0}, recompute_mode::none).value() == tokens * (kept + 4 * 32));

  const analytic_cost t5{presets::t5_11b(), presets::h100()};
  const std::int64_t q = 16'384, h = 1'024;
  const std::int64_t decoder_tokens = 3 * 64;
  const std::int64_t own = 13 * h - 8 * h + 8 * q + 5 * h + 2 * 65'536 * 2;  // self-attention and feed-forward
  const std::int64_t cross = 5 * h + 4 * q;                                  // without its keys and values
  CHECK(t5.stored(layer_kind::cross_decoder, {3, 256, 64}, recompute_mode::selective).value() ==
        decoder_tokens * (own + cross) + tokens * 4 * q);
  CHECK(t5.stored(layer_kind::cross_decoder, {3, 256, 64}, recompute_mode::full).value() == decoder_tokens * 2 * h);
  CHECK(t5.stored(layer_kind::head, {3, 256, 64}, recompute_mode::none).value() ==
        decoder_tokens * (4 * h + 4 * 32'128));
}

TEST_CASE("recomputation neither adds stored bytes nor takes away time") {
  const analytic_cost cost{presets::t5_11b(), presets::a100_40g(), {.tensor_parallel = 4}};
  for (const layer_kind kind : kinds)
    for (const shape& s : {shape{1, 8, 8}, {2, 512, 128}, {7, 64, 2048}}) {
      CHECK(cost.stored(kind, s, recompute_mode::none) >= cost.stored(kind, s, recompute_mode::selective));
      CHECK(cost.stored(kind, s, recompute_mode::selective) >= cost.stored(kind, s, recompute_mode::full));
      CHECK(cost.backward(kind, s, recompute_mode::none) <= cost.backward(kind, s, recompute_mode::selective));
      CHECK(cost.backward(kind, s, recompute_mode::selective) <= cost.backward(kind, s, recompute_mode::full));
      for (const recompute_mode mode : modes) {
        CHECK(cost.forward(kind, s, mode) == cost.forward(kind, s, recompute_mode::none));
        CHECK(cost.forward_peak(kind, s, mode) >= cost.stored(kind, s, recompute_mode::none));
      }
    }
}

TEST_CASE("times of compute-bound passes, by hand") {
  const analytic_cost cost{small_model(), round_cluster()};
  // Four rows of (98,304 x 512 + 128 x 2^18) / 50,000 = 1,677.7216, each rounded up.
  CHECK(cost.forward(layer_kind::decoder, four_rows, recompute_mode::none).value() == 6'712);
  CHECK(cost.backward(layer_kind::decoder, four_rows, recompute_mode::none).value() == 13'424);
  // Attention once more: 128 x 2^18 / 50,000 = 671.08864 a row
  CHECK(cost.backward(layer_kind::decoder, four_rows, recompute_mode::selective).value() == 16'108);
  // The forward once more.
  CHECK(cost.backward(layer_kind::decoder, four_rows, recompute_mode::full).value() == 20'136);
  // The head's one matrix: 2 x 64 x 1,000 x 512 / 50,000 = 1,310.72 a row
  CHECK(cost.forward(layer_kind::head, four_rows, recompute_mode::none).value() == 5'244);
  CHECK(cost.backward(layer_kind::head, four_rows, recompute_mode::full).value() == 10'488);
  CHECK(cost.forward(layer_kind::head, {4, 512, 256}, recompute_mode::none).value() == 2'624);
}

TEST_CASE("a causal mask halves attention where the kernel skips what it hides") {
  // 256 x 2^20 pairs: (98,304 x 2,048 + 256 x 2^20) / 50,000 = 9,395.24
  model_spec model = small_model();
  CHECK(analytic_cost{model, round_cluster()}.forward(layer_kind::encoder, four_rows, recompute_mode::none).value() ==
        9'396);
  model.kernel = attention_kernel::unfused;
  CHECK(analytic_cost{model, round_cluster()}.forward(layer_kind::decoder, four_rows, recompute_mode::none).value() ==
        9'396);
  model.kernel = attention_kernel::fused;
  model.attention = attention_mask::bidirectional;
  CHECK(analytic_cost{model, round_cluster()}.forward(layer_kind::decoder, four_rows, recompute_mode::none).value() ==
        9'396);
}

TEST_CASE("time of a cross-attending layer, by hand") {
  // rows 2, input 300, target 100: 200 queries, 600 keys, 20,000 pairs of self-, 60,000 of cross-attention.
  // FLOPs: a query 98,304 + 2 x 64 x 128, a key 2 x 64 x 128, pairs 128 and 256.
  constexpr std::int64_t flops = 200 * (98'304 + 16'384) + 600 * 16'384 + 20'000 * 128 + 60'000 * 256;
  static_assert(flops == 50'688'000);
  const analytic_cost cost{small_model(), round_cluster()};
  CHECK(cost.forward(layer_kind::cross_decoder, {2, 300, 100}, recompute_mode::none).value() == 1'014);  // 1,013.76
  CHECK(cost.backward(layer_kind::cross_decoder, {2, 300, 100}, recompute_mode::selective).value() ==
        2'386);  // 2,027.52 + 358.4
}

TEST_CASE("times of memory-bound passes, by hand") {
  cluster_spec cluster = round_cluster();
  cluster.memory_gbps = 1'000;  // bytes a nanosecond
  const analytic_cost cost{small_model(), cluster};
  // 49,408 parameters of 2 bytes: 98.816 ns. For each of four rows, twice 512 tokens of 34 x 64 + 4 x 2 bytes:
  // 2,236.416 ns. The backward is twice, the recomputing one three times of each; all rounded up.
  CHECK(cost.forward(layer_kind::decoder, four_rows, recompute_mode::none).value() == 99 + 4 * 2'237);
  CHECK(cost.backward(layer_kind::decoder, four_rows, recompute_mode::none).value() == 198 + 4 * 4'473);
  CHECK(cost.backward(layer_kind::decoder, four_rows, recompute_mode::full).value() == 297 + 4 * 6'710);
}

TEST_CASE("no pass is shorter than the launch floor") {
  cluster_spec cluster = round_cluster();
  cluster.launch_floor = nanoseconds{10'000};
  const analytic_cost cost{small_model(), cluster};
  CHECK(cost.forward(layer_kind::decoder, four_rows, recompute_mode::none).value() == 10'000);
  CHECK(cost.backward(layer_kind::decoder, four_rows, recompute_mode::none).value() == 13'424);
  for (const layer_kind kind : kinds)
    CHECK(cost.forward(kind, {1, 1, 1}, recompute_mode::none).value() == 10'000);
}

TEST_CASE("tensor parallelism divides arithmetic and adds all-reduces, by hand") {
  const analytic_cost cost{small_model(), round_cluster(), {.tensor_parallel = 2}};
  // 6,710.8864 / 2, and two rings of 2 steps: 4 x 10 latency, 2 x 2,048 x 64 x 2 bytes at 100 bytes/ns = 5,242.88.
  CHECK(cost.forward(layer_kind::decoder, four_rows, recompute_mode::none).value() == 8'640);    // 8,638.3232, in rows
  CHECK(cost.backward(layer_kind::decoder, four_rows, recompute_mode::none).value() == 11'996);  // 11,993.7664
  CHECK(cost.backward(layer_kind::decoder, four_rows, recompute_mode::full).value() == 20'636);  // 20,632.0896

  cluster_spec small_nodes = round_cluster();
  small_nodes.devices_per_node = 1;  // the slower link: ten times as long, latency 4 x 1,000
  const analytic_cost far{small_model(), small_nodes, {.tensor_parallel = 2}};
  CHECK(far.forward(layer_kind::decoder, four_rows, recompute_mode::none).value() == 59'788);  // 59,784.2432
}

TEST_CASE("model state: bytes of a parameter, divided over tensor-parallel ranks") {
  const model_spec model = presets::gpt_6_7b();
  for (const std::int64_t t : {1, 2, 8, 32}) {
    const analytic_cost cost{model, presets::a100_80g(), {.tensor_parallel = t}};
    for (const layer_kind kind : kinds)
      CHECK(cost.state(kind).value() == ceil_div(parameters(model, kind) * 16, t));
  }
}

TEST_CASE("tensor parallelism must divide the heads") {
  CHECK(complaint(presets::gpt_6_7b(), presets::h100(), 8) == "none");
  for (const std::int64_t t : {0, -1, 3, 64}) {
    CAPTURE(t);
    CHECK(complaint(presets::gpt_6_7b(), presets::h100(), t)
              .find("must divide the model's 32 heads, it is " + std::to_string(t)) != std::string::npos);
  }
  CHECK(complaint({}, presets::h100(), 1).find("decoder_layers") != std::string::npos);
  CHECK(complaint(presets::gpt_6_7b(), {}, 1).find("memory_bytes") != std::string::npos);
}

TEST_CASE("costs do not fall when rows or a length grow") {
  constexpr unsigned seed = 2'311;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  for (const model_spec& preset : presets::models())
    for (const attention_kernel kernel : {attention_kernel::fused, attention_kernel::unfused})
      for (const cluster_spec& cluster : presets::clusters()) {
        model_spec model = preset;
        model.kernel = kernel;
        const std::int64_t tensors[] = {1, 2, 4};
        const analytic_cost cost{model, cluster, {.tensor_parallel = tensors[below(3)]}};
        for (int round = 0; round < 40; ++round) {
          const std::int64_t scale = std::int64_t{1} << below(33);
          shape s{1 + below(scale), 1 + below(scale), model.encoder_decoder() ? 1 + below(scale) : 0};
          shape larger = s;
          larger.rows += below(3) == 0 ? below(scale) : 0;
          larger.input += below(2) == 0 ? 1 + below(scale) : 0;
          if (model.encoder_decoder()) larger.target += below(2) == 0 ? 1 + below(scale) : 0;
          CAPTURE(model.name);
          CAPTURE(scale);
          for (const layer_kind kind : kinds)
            for (const recompute_mode mode : modes) {
              REQUIRE(cost.forward(kind, s, mode) <= cost.forward(kind, larger, mode));
              REQUIRE(cost.backward(kind, s, mode) <= cost.backward(kind, larger, mode));
              REQUIRE(cost.stored(kind, s, mode) <= cost.stored(kind, larger, mode));
              REQUIRE(cost.forward_peak(kind, s, mode) <= cost.forward_peak(kind, larger, mode));
              REQUIRE(cost.backward_peak(kind, s, mode) <= cost.backward_peak(kind, larger, mode));
              REQUIRE(cost.forward(kind, s, mode) >= nanoseconds{0});
              REQUIRE(cost.stored(kind, s, mode) >= bytes{0});
              REQUIRE(cost.forward_peak(kind, s, mode) >= cost.stored(kind, s, mode));
            }
        }
      }
}

TEST_CASE("costs of concatenated samples: as of padded rows for one, and they do not fall") {
  constexpr unsigned seed = 2'312;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  for (const model_spec& preset : presets::models())
    for (const attention_kernel kernel : {attention_kernel::fused, attention_kernel::unfused})
      for (const bool sequence : {false, true}) {
        model_spec model = preset;
        model.kernel = kernel;
        const analytic_cost cost{model, presets::h100(), {.tensor_parallel = 2, .sequence_parallel = sequence}};
        const std::int64_t window = skipped_window(model);
        for (int round = 0; round < 40; ++round) {
          const std::int64_t scale = std::int64_t{1} << below(18);
          const auto length = [&] { return 1 + below(scale); };
          const auto target = [&] { return model.encoder_decoder() ? length() : 0; };
          const shape row{1, length(), target()};
          varlen_shape one = with_sample({}, row.input, row.target, window);
          varlen_shape more = with_sample(one, length(), target(), window);
          varlen_shape longer = with_sample({}, row.input + below(3), row.target, window);
          CAPTURE(model.name);
          CAPTURE(row.input);
          for (const layer_kind kind : kinds)
            for (const recompute_mode mode : modes) {
              REQUIRE(every_cost(cost, kind, row, mode) == every_cost(cost, kind, one, mode));
              const auto least = every_cost(cost, kind, one, mode);
              for (const varlen_shape& larger : {more, longer}) {
                const auto grown = every_cost(cost, kind, larger, mode);
                for (std::size_t i = 0; i < least.size(); ++i)
                  REQUIRE(least[i] <= grown[i]);
              }
            }
        }
      }
}

TEST_CASE("halves of a backward: times sum to it at least, and no more is kept than is stored") {
  constexpr unsigned seed = 2'313;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  for (const model_spec& model : presets::models())
    for (const cluster_spec& cluster : presets::clusters())
      for (const bool sequence : {false, true}) {
        const analytic_cost cost{model, cluster, {.tensor_parallel = 4, .sequence_parallel = sequence}};
        for (int round = 0; round < 20; ++round) {
          const shape s{1 + below(16), 1 + below(1 << below(16)), model.encoder_decoder() ? 1 + below(4'096) : 0};
          for (const layer_kind kind : kinds)
            for (const recompute_mode mode : modes) {
              REQUIRE(cost.backward_input(kind, s, mode) + cost.backward_weight(kind, s, mode) >=
                      cost.backward(kind, s, mode));
              REQUIRE(cost.weight_stored(kind, s, mode) <= cost.stored(kind, s, mode));
              REQUIRE(cost.backward_input(kind, s, mode) <= cost.backward(kind, s, mode));
            }
        }
      }
}

TEST_CASE("halves of a backward, by hand") {
  const analytic_cost cost{small_model(), round_cluster()};
  // Matrices 98,304 x 2,048 / 50,000 = 4,026.53184 in each half; attention twice 2,684.35456 in the input's.
  CHECK(cost.backward_weight(layer_kind::decoder, four_rows, recompute_mode::none).value() == 4'028);
  CHECK(cost.backward_input(layer_kind::decoder, four_rows, recompute_mode::none).value() == 9'396);  // 9,395.24096
  CHECK(cost.backward_input(layer_kind::decoder, four_rows, recompute_mode::selective).value() == 12'080);
  CHECK(cost.backward_input(layer_kind::decoder, four_rows, recompute_mode::full).value() == 16'108);  // + 6,710.8864
  CHECK(cost.backward_weight(layer_kind::decoder, four_rows, recompute_mode::full).value() == 4'028);
  // The zero-bubble paper's 32 s b h of 34.
  const analytic_cost gpt{presets::gpt_6_7b(), presets::h100()};
  const std::int64_t sbh = 3 * 512 * 4'096;
  CHECK(gpt.weight_stored(layer_kind::decoder, {3, 512, 0}, recompute_mode::none).value() == 32 * sbh);
  CHECK(gpt.weight_stored(layer_kind::decoder, {3, 512, 0}, recompute_mode::selective).value() == 32 * sbh);
  CHECK(gpt.weight_stored(layer_kind::decoder, {3, 512, 0}, recompute_mode::full).value() == 2 * sbh);
}

TEST_CASE("sequence parallelism divides all that is stored, and gathers inputs once more, by hand") {
  for (const std::int64_t t : {1, 2, 8}) {
    const analytic_cost cost{
        gpt(4'096, 32, attention_kernel::unfused), presets::h100(), {.tensor_parallel = t, .sequence_parallel = true}};
    const std::int64_t sbh = 3 * 512 * 4'096;
    const std::int64_t scores = 5 * 32 * 3 * 512 * 512;
    CHECK(cost.stored(layer_kind::decoder, {3, 512, 0}, recompute_mode::none).value() == (34 * sbh + scores) / t);
    CHECK(cost.stored(layer_kind::decoder, {3, 512, 0}, recompute_mode::selective).value() == 34 * sbh / t);
    CHECK(cost.stored(layer_kind::decoder, {3, 512, 0}, recompute_mode::full).value() == 2 * sbh / t);
  }
  const analytic_cost cost{small_model(), round_cluster(), {.tensor_parallel = 2, .sequence_parallel = true}};
  // As with tensor parallelism alone: 6,710.8864 / 2 + 40 + 5,242.88; backward half of the collectives once more.
  CHECK(cost.forward(layer_kind::decoder, four_rows, recompute_mode::none).value() == 8'640);    // 8,638.3232, in rows
  CHECK(cost.backward(layer_kind::decoder, four_rows, recompute_mode::none).value() == 14'636);  // + 20 + 2,621.44
  CHECK(cost.backward_weight(layer_kind::decoder, four_rows, recompute_mode::none).value() == 4'656);  // 4,654.70592
  CHECK(cost.backward_input(layer_kind::decoder, four_rows, recompute_mode::none).value() == 9'984);   // 9,980.50048
}

TEST_CASE("stored bytes of mixtures, latent attention and windows, term by term") {
  const analytic_cost qwen{presets::qwen3_30b_a3b(), presets::h100()};
  const std::int64_t tokens = 2 * 300;
  // Inputs of norms and blocks, queries and output, keys and values; then eight copies of the input and eight outputs,
  // scores of the router, and gate, up and product of eight experts.
  const std::int64_t routed = 8 * 2'048 + 2 * (2 * 4'096 + 2 * 512) + 16 * 2 * 2'048 + 4 * 128 + 2 * 3 * 8 * 768;
  CHECK(qwen.stored(layer_kind::decoder, {2, 300, 0}, recompute_mode::selective).value() == tokens * routed);

  const model_spec deepseek = presets::deepseek_v3();
  const std::int64_t narrow = 2 * (2 * (1'536 + 512) + 64);
  const std::int64_t inner = 2 * 128 * (192 + 192 + 128 + 128) + 2 * 3 * 9 * 2'048;
  const std::int64_t whole = 8 * 7'168 + 16 * 2 * 7'168 + 4 * 256 + narrow;
  for (const std::int64_t t : {1, 4}) {
    const analytic_cost cost{deepseek, presets::h100(), {.tensor_parallel = t}};
    CHECK(cost.stored(layer_kind::decoder, {2, 300, 0}, recompute_mode::selective).value() ==
          tokens * (whole + inner / t));
  }

  model_spec mistral = presets::mistral_7b();
  model_spec unlimited = mistral;
  unlimited.window = 0;
  const analytic_cost windowed{mistral, round_cluster()};
  const analytic_cost all{unlimited, round_cluster()};
  const shape s{1, 16'384, 0};
  CHECK(windowed.stored(layer_kind::decoder, s, recompute_mode::none) ==
        all.stored(layer_kind::decoder, s, recompute_mode::none));
  // 12,288^2 squares of 8,192 FLOPs less, at 50,000 a nanosecond: 24,739,011.8
  const nanoseconds saved = all.forward(layer_kind::decoder, s, recompute_mode::none) -
                            windowed.forward(layer_kind::decoder, s, recompute_mode::none);
  CHECK(saved.value() >= 24'739'011);
  CHECK(saved.value() <= 24'739'013);
  mistral.kernel = unlimited.kernel = attention_kernel::unfused;
  CHECK(analytic_cost{mistral, round_cluster()}.forward(layer_kind::decoder, s, recompute_mode::none) ==
        analytic_cost{unlimited, round_cluster()}.forward(layer_kind::decoder, s, recompute_mode::none));
}

TEST_CASE("transients of an unfused GPT layer are those that were measured") {
  // Megatron-LM's layer, in s b h on top of what is stored: see docs/roofline.md.
  constexpr std::int64_t h = 4'096, a = 32;
  for (const std::int64_t t : {1, 2, 4})
    for (const std::int64_t s : {64, 8'192}) {
      const analytic_cost cost{gpt(h, a, attention_kernel::unfused), presets::a100_40g(), {.tensor_parallel = t}};
      const std::int64_t sbh = s * h;
      const std::int64_t scores = a * s * s;
      const auto peak = [&](recompute_mode mode) { return cost.backward_peak(layer_kind::decoder, {1, s, 0}, mode); };
      CHECK(peak(recompute_mode::none).value() == std::max(56 * sbh / t - 3 * sbh, 2 * scores / t));
      CHECK(peak(recompute_mode::selective).value() == std::max(56 * sbh / t - 3 * sbh, 7 * scores / t));
      CHECK(peak(recompute_mode::full).value() == std::max(72 * sbh / t + 3 * sbh, 7 * scores / t + 6 * sbh / t));
    }
}

TEST_CASE("state under ZeRO and with another optimizer; options out of range") {
  const model_spec model = presets::llama_3_8b();
  const std::int64_t count = parameters(model, layer_kind::decoder);
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    const analytic_cost cost{model, presets::h100(), {.tensor_parallel = 2, .zero = zero, .data_parallel = 8}};
    CHECK(cost.state(layer_kind::decoder) == total_state_of(count, adam(dtype::bf16), {2, zero, 8}));
  }
  const analytic_cost plain{model, presets::h100(), {.state = parameter_bytes{2, 4, 0}}};
  CHECK(plain.state(layer_kind::decoder).value() == 6 * count);

  const auto complaint_of = [&](const analytic_options& options) {
    try {
      const analytic_cost cost{model, presets::h100(), options};
    } catch (const error& e) {
      return std::string{e.what()};
    }
    return std::string{"none"};
  };
  CHECK(complaint_of({.zero = 4}) == "zero must lie in 0..3, it is 4");
  CHECK(complaint_of({.data_parallel = 0}) == "data_parallel must lie in 1..1000000, it is 0");
  CHECK(complaint_of({.state = parameter_bytes{2, -2, 0}}) == "state.gradient must lie in 0..1000, it is -2");
}

TEST_CASE("costs beyond measure are held at the largest value") {
  constexpr std::int64_t length = std::int64_t{1} << 32;
  model_spec model = presets::llama_3_70b();
  model.kernel = attention_kernel::unfused;
  const analytic_cost cost{model, presets::a100_40g()};
  const shape far{length, length, length};
  CHECK(cost.stored(layer_kind::decoder, far, recompute_mode::none) == bytes::max());
  CHECK(cost.forward(layer_kind::decoder, far, recompute_mode::none) == nanoseconds::max());
  CHECK(cost.backward(layer_kind::cross_decoder, far, recompute_mode::full) == nanoseconds::max());
  CHECK(cost.forward_peak(layer_kind::cross_decoder, far, recompute_mode::selective) == bytes::max());
  CHECK(cost.backward_peak(layer_kind::encoder, far, recompute_mode::none) == bytes::max());

  // One row of 2^31 tokens: stored bytes without scores still fit, and are exact.
  const analytic_cost fused{presets::gpt_6_7b(), presets::a100_40g()};
  constexpr std::int64_t s = std::int64_t{1} << 31;
  CHECK(fused.stored(layer_kind::decoder, {1, s, 0}, recompute_mode::selective).value() == 34 * s * 4096);
  CHECK(fused.forward(layer_kind::decoder, {1, s, 0}, recompute_mode::none) < nanoseconds::max());

  // The largest sizes that a model may have.
  model_spec vast{.name = "vast",
                  .encoder_layers = 10'000,
                  .decoder_layers = 10'000,
                  .cross_attention = true,
                  .hidden = 1'000'000,
                  .heads = 1'000'000,
                  .kv_heads = 1'000'000,
                  .head_dim = 10,
                  .ffn = 100'000'000,
                  .gated = true,
                  .vocabulary = 100'000'000,
                  .type = dtype::fp64};
  cluster_spec slow = presets::a100_40g();
  slow.matmul_tflops = 0.001;
  slow.efficiency = 0.001;
  slow.memory_gbps = 0.001;
  slow.intra_node.gbps = 0.001;
  for (const std::int64_t t : {1, 8}) {
    const analytic_cost most{vast, slow, {.tensor_parallel = t}};
    for (const layer_kind kind : kinds)
      for (const recompute_mode mode : modes) {
        // The embedding moves its matrix and nothing else: 8 * 10^14 bytes at 10^6 bytes a second.
        const bool embeds = kind == layer_kind::embedding;
        const nanoseconds matrix{800'000'000'000'000'000 / t};
        CHECK(most.forward(kind, far, mode) >= (embeds ? matrix : nanoseconds::max()));
        if (embeds && t == 1) CHECK(most.forward(kind, far, mode) == matrix);
        CHECK(most.backward(kind, far, mode) >= most.forward(kind, far, mode));
        CHECK(most.stored(kind, far, mode) == (embeds ? bytes{0} : bytes::max()));
        CHECK(most.forward(kind, {0, 0, 0}, mode) >= nanoseconds{0});
      }
  }
}
