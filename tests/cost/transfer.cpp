#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <dynapipe/cost/split.hpp>
#include <dynapipe/cost/transfer.hpp>

using namespace dynapipe;

namespace {

model_spec decoder_only(std::int64_t layers) { return presets::gpt("gpt", layers, 64, 4); }
model_spec encoder_decoder(std::int64_t encoder, std::int64_t decoder) {
  model_spec model = presets::t5("t5", 1);
  model.encoder_layers = encoder;
  model.decoder_layers = decoder;
  return model;
}

}  // namespace

TEST_CASE("what stages hand on: hidden states, and in a decoder with an encoder its output before them") {
  using tensors = std::vector<std::array<std::int64_t, 3>>;
  const model_spec gpt = decoder_only(4);
  for (const stage_spec& stage : split_layers(gpt, 4)) {
    CHECK(boundary_tensors(gpt, stage, {3, 128, 0}) == tensors{{3, 128, 64}});
    CHECK(boundary_bytes(gpt, stage, {3, 128, 0}) == bytes{3 * 128 * 64 * 2});
  }
  const model_spec t5 = encoder_decoder(2, 3);
  const std::vector<stage_spec> stages = split_layers(t5, 5);
  const shape s{3, 128, 16};
  for (const std::size_t e : {0U, 1U})
    CHECK(boundary_tensors(t5, stages[e], s) == tensors{{3, 128, 1024}});
  for (const std::size_t d : {2U, 3U})
    CHECK(boundary_tensors(t5, stages[d], s) == tensors{{3, 128, 1024}, {3, 16, 1024}});
  CHECK(boundary_bytes(t5, stages[0], s) == bytes{3 * 128 * 1024 * 2});
  CHECK(boundary_bytes(t5, stages[2], s) == bytes{3 * (128 + 16) * 1024 * 2});
  // A stage of both hands on both.
  const std::vector<stage_spec> two = split_layers(t5, 2);
  REQUIRE(two[0].encoder.count() == 2);
  CHECK(boundary_tensors(t5, two[0], s) ==
        (two[0].decoder.count() > 0 ? tensors{{3, 128, 1024}, {3, 16, 1024}} : tensors{{3, 128, 1024}}));
  model_spec wide = gpt;
  wide.type = dtype::fp32;
  CHECK(boundary_bytes(wide, stages[0], {3, 128, 0}) == bytes{3 * 128 * 64 * 4});
}

TEST_CASE("a rank sends all of the hidden states, or its part of the tokens under sequence parallelism") {
  using tensors = std::vector<std::array<std::int64_t, 3>>;
  const model_spec t5 = encoder_decoder(2, 3);
  const std::vector<stage_spec> stages = split_layers(t5, 5);
  const shape s{3, 128, 18};
  CHECK(boundary_tensors(t5, stages[2], s, {.ranks = 8}) == tensors{{3, 128, 1024}, {3, 18, 1024}});
  CHECK(boundary_tensors(t5, stages[2], s, {.ranks = 8, .sequence = true}) == tensors{{3, 16, 1024}, {3, 3, 1024}});
  CHECK(boundary_tensors(t5, stages[2], s, {.ranks = 1, .sequence = true}) == boundary_tensors(t5, stages[2], s));

  constexpr unsigned seed = 404;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  for (int round = 0; round < 2'000; ++round) {
    const bool both = below(2) == 0;
    const model_spec model = both ? encoder_decoder(2, 3) : decoder_only(5);
    const shape of{1 + below(9), 1 + below(500), both ? 1 + below(500) : 0};
    const tensor_group group{.ranks = 1 + below(9), .sequence = below(2) == 0};
    for (const stage_spec& stage : split_layers(model, 5)) {
      std::int64_t elements = 0;
      for (const auto& [rows, length, hidden] : boundary_tensors(model, stage, of, group))
        elements += rows * length * hidden;
      CHECK(boundary_bytes(model, stage, of, group) == bytes{2 * elements});
      // All ranks' parts together hold every token.
      if (group.sequence)
        CHECK(boundary_bytes(model, stage, of, group) * group.ranks >= boundary_bytes(model, stage, of));
    }
  }
  constexpr std::int64_t most = std::int64_t{1} << 32;
  CHECK(boundary_bytes(presets::gpt_29b(), split_layers(presets::gpt_29b(), 4)[0], {most, most, 0}) == bytes::max());
}

TEST_CASE("a boundary's time: ranks share their card, and computation slows the bytes but not the latency") {
  link_spec link{.latency = nanoseconds{7}, .gbps = 8, .ranks_per_link = 4};  // a byte a nanosecond
  const auto time = [&](std::int64_t size, std::int64_t ranks = 1) {
    return boundary_time(link, bytes{size}, {.ranks = ranks}).value();
  };
  CHECK(time(1'000) == 1'007);
  CHECK(time(1'000, 2) == 2'007);
  CHECK(time(1'000, 16) == 4'007);
  link.overlap_slowdown = 1.25;
  CHECK(time(1'000) == 1'257);
  CHECK(time(1'000, 2) == 2'507);
  CHECK(time(1, 1) == 7 + 2);
  CHECK(time(0) == 7);
  link.overlap_slowdown = 1.0004;  // less than a thousandth
  CHECK(time(1'000) == 1'007);
  link.overlap_slowdown = 1'000;
  CHECK(boundary_time(link, bytes::max(), {.ranks = 4}) == nanoseconds::max());
  // Sequence parallelism divides the bytes, and with them the time on a shared card.
  const model_spec gpt = decoder_only(4);
  link.overlap_slowdown = 1;
  const stage_spec stage = split_layers(gpt, 2)[0];
  const auto whole = boundary_bytes(gpt, stage, {2, 64, 0}, {.ranks = 4});
  const auto part = boundary_bytes(gpt, stage, {2, 64, 0}, {.ranks = 4, .sequence = true});
  CHECK(whole == bytes{2 * 64 * 64 * 2});
  CHECK(part * 4 == whole);
  CHECK(time(part.value(), 4) == 7 + whole.value());
}

TEST_CASE("a boundary's time is the least that its bandwidth allows") {
  constexpr unsigned seed = 405;
  MESSAGE("seed ", seed);
  std::mt19937_64 random{seed};
  for (int round = 0; round < 5'000; ++round) {
    const auto megabits = static_cast<std::int64_t>(random() % 5'000'000 + 1);
    const auto thousandths = static_cast<std::int64_t>(1'000 + random() % 3'000);
    const link_spec link{.latency = nanoseconds{static_cast<std::int64_t>(random() % 1'000)},
                         .gbps = static_cast<double>(megabits) / 1'000,
                         .ranks_per_link = static_cast<std::int64_t>(random() % 8 + 1),
                         .overlap_slowdown = static_cast<double>(thousandths) / 1'000};
    const auto size = static_cast<std::int64_t>(random() % (std::uint64_t{1} << (random() % 50 + 1)));
    const auto ranks = static_cast<std::int64_t>(random() % 8 + 1);
    const wide_int work = static_cast<wide_int>(size) * 8 * thousandths * std::min(ranks, link.ranks_per_link);
    const std::int64_t time = boundary_time(link, bytes{size}, {.ranks = ranks}).value() - link.latency.value();
    CHECK(static_cast<wide_int>(time) * megabits >= work);
    CHECK(static_cast<wide_int>(time - 1) * megabits < work);
    CHECK(time >= transfer_time(link, bytes{size}, ranks).value() - link.latency.value());
  }
}
